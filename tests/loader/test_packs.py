"""The cache of packs: whole files only, whoever writes or dies, and never more than its cap."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, ResourceError
from edgeinfer.loader import packs
from edgeinfer.loader.pack_file import HUGE_PAGE, map_pack
from edgeinfer.quant.packed import MatrixKey, MatrixToPack

ONE_PACK = HUGE_PAGE + 1000  # bytes of what `written` writes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path))
    monkeypatch.delenv(packs.ENVIRONMENT, raising=False)
    return tmp_path / "packs"


def written(n: int, *, most_bytes: int = 1 << 40, source: str | None = None) -> Path:
    """Write the pack of the n-th model, used n seconds after the epoch."""
    data = np.full(1000, n, np.uint8)
    matrix = MatrixToPack(MatrixKey("w", "F32", 1, 250, 1), 1000, lambda: iter([data]))
    path = packs.write_pack(
        [matrix],
        fingerprint=bytes([n] * 32),
        layout="x",
        source=source or f"/m{n}.gguf",
        most_bytes=most_bytes,
    )
    os.utime(path, (n, n))
    return path


def test_a_pack_is_found_by_fingerprint_and_layout() -> None:
    path = written(1)
    assert path == packs.pack_path(bytes([1] * 32), "x")
    assert path != packs.pack_path(bytes([1] * 32), "y")
    assert path != packs.pack_path(bytes([2] * 32), "x")
    assert (map_pack(path)[1]["w"].data == 1).all()


def test_a_pack_that_is_there_is_not_written_again() -> None:
    before = written(1).stat()
    after = written(1).stat()
    assert (before.st_ino, before.st_mtime) == (after.st_ino, after.st_mtime)


def test_a_damaged_pack_is_written_again() -> None:
    path = written(1)
    os.truncate(path, 5000)
    assert written(1) == path
    assert (map_pack(path)[1]["w"].data == 1).all()


def test_the_pack_of_an_earlier_state_of_the_file_goes() -> None:
    old, other = written(1, source="/m.gguf"), written(2)
    new = written(3, source="/m.gguf")
    assert [p.path for p in packs.kept()] == [new, other]
    assert not old.exists()


def test_the_cap_holds_and_the_longest_unused_go_first(folder: Path) -> None:
    first, second, third = written(1), written(2), written(3)
    packs.note_use(first)
    fourth = written(4, most_bytes=3 * ONE_PACK)
    assert {p.path for p in packs.kept()} == {first, third, fourth}
    assert not second.exists()
    assert sum(f.stat().st_size for f in folder.iterdir()) <= 3 * ONE_PACK


def test_a_look_at_a_pack_is_no_use_of_it() -> None:
    path = written(1)
    assert [pack.used_s for pack in packs.kept() + packs.kept()] == [1, 1]
    packs.note_use(path)
    assert packs.kept()[0].used_s > time.time() - 60


def test_one_that_is_larger_than_the_cap_is_refused_and_nothing_goes() -> None:
    path = written(1)
    with pytest.raises(ResourceError, match=f"need at most {ONE_PACK - 1}.*{packs.ENVIRONMENT}"):
        written(2, most_bytes=ONE_PACK - 1)
    assert path.exists()


def test_a_mapped_pack_outlives_its_removal() -> None:
    path = written(7)
    data = map_pack(path)[1]["w"].data
    packs.remove_pack(path)
    assert (data == 7).all()
    assert packs.kept() == []


@pytest.mark.parametrize("text", ["x", "-1", "1e9", "1G", "٣"])
def test_a_cap_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(packs.ENVIRONMENT, text)
    with pytest.raises(InvalidParameterError, match=packs.ENVIRONMENT):
        packs.max_bytes()


def test_the_cap_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packs.max_bytes() == 32 << 30
    monkeypatch.setenv(packs.ENVIRONMENT, "12345")
    assert packs.max_bytes() == 12345


def test_no_folder_no_packs() -> None:
    assert packs.kept() == []


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgeinfer.loader.pack_file.os.fsync", fail)
    with pytest.raises(ResourceError, match="No space left"):
        written(1)
    assert packs.kept() == []
    assert not list(folder.glob("*.part-*"))


SLOW_WRITER = """
    import sys, time
    import numpy as np
    from edgeinfer.loader import packs
    from edgeinfer.quant.packed import MatrixKey, MatrixToPack

    def pieces():
        for i in range(1000):
            if i == 10:
                print("writing", flush=True)
            time.sleep(float(sys.argv[1]))
            yield np.full(50_000, 5, np.uint8)

    matrix = MatrixToPack(MatrixKey("w", "F32", 1, 250, 1), 50_000_000, pieces)
    path = packs.write_pack(
        [matrix], fingerprint=bytes([9] * 32), layout="x", source="/m.gguf", most_bytes=1 << 40,
        on_wait=lambda: print("waiting", flush=True),
    )
    print(path, flush=True)
"""


def writer(pause_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(SLOW_WRITER), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_leaves_no_pack_and_the_next_one_cleans_up(folder: Path) -> None:
    with writer(0.01) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert list(folder.glob("*.pack.part-*"))
    assert packs.kept() == []
    written(1)  # another model's
    assert not list(folder.glob("*.part-*"))


def test_what_another_process_is_writing_stays(folder: Path) -> None:
    with writer(0.01) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        written(1)
        assert list(folder.glob("*.pack.part-*"))
        process.kill()


def test_two_writers_of_one_pack_make_one(folder: Path) -> None:
    with writer(0.0005) as first, writer(0.0005) as second:
        assert first.stdout is not None and second.stdout is not None
        told = [first.stdout.read().split(), second.stdout.read().split()]
    path = packs.pack_path(bytes([9] * 32), "x")
    assert {words[-1] for words in told} == {str(path)}
    assert sorted(word for words in told for word in words[:-1]) == ["waiting", "writing"]
    assert (map_pack(path)[1]["w"].data == 5).all()
    assert not list(folder.glob("*.part-*"))
