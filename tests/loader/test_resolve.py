import os
import socket
from pathlib import Path

import pytest

from edgeinfer.errors import ModelFormatError, ModelNotFoundError
from edgeinfer.loader.catalogue import CATALOGUE
from edgeinfer.loader.resolve import pull, resolve


@pytest.mark.parametrize("name", ["plain.gguf", "with space.gguf", "\N{LLAMA}.gguf", "no-suffix"])
def test_path_resolves_to_itself(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"GGUF")

    assert resolve(path) == path
    assert resolve(str(path)) == path


def test_path_outside_utf8_resolves(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/\xff\xfe.gguf"
    with open(raw, "wb") as file:
        file.write(b"GGUF")

    assert os.fsencode(resolve(os.fsdecode(raw))) == raw


def test_longest_path_resolves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4095 bytes and a NUL are what Linux takes for a path."""
    monkeypatch.chdir(tmp_path)
    path = "./" * 2044 + "m.gguf"
    assert len(path) == 4094
    Path("m.gguf").write_bytes(b"GGUF")

    assert resolve(path).read_bytes() == b"GGUF"


def test_missing_file_is_named() -> None:
    with pytest.raises(ModelNotFoundError, match=r"^/nowhere/m\.gguf: no such file$"):
        resolve("/nowhere/m.gguf")


def test_unknown_name_lists_the_catalogue_and_how_to_give_a_path() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("smolm2")

    message = str(caught.value)
    assert "Did you mean smollm2?" in message
    assert "path of a GGUF file" in message
    assert all(name in message for name in CATALOGUE)


@pytest.mark.parametrize("name", ["", "/nowhere/m.gguf"])
def test_pull_of_no_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="one of: "):
        pull(name)


def test_folder_is_refused_and_its_models_are_named(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.gguf").touch()

    with pytest.raises(ModelFormatError, match=r"is a folder.*0\.gguf, .*4\.gguf and 2 more"):
        resolve(tmp_path)


def test_fifo_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")

    with pytest.raises(ModelFormatError, match="is a FIFO, need a regular file"):
        resolve(tmp_path / "m.gguf")


def test_device_is_refused() -> None:
    with pytest.raises(ModelFormatError, match="is a device, need a regular file"):
        resolve("/dev/zero")


def test_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("m.gguf")

        with pytest.raises(ModelFormatError, match="is a socket"):
            resolve("m.gguf")


def test_dangling_link_names_its_target(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to("gone.gguf")

    with pytest.raises(ModelNotFoundError, match=r"is a link to gone\.gguf, which does not exist"):
        resolve(tmp_path / "m.gguf")


def test_link_to_a_file_resolves(tmp_path: Path) -> None:
    (tmp_path / "real.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.gguf").symlink_to("real.gguf")

    assert resolve(tmp_path / "m.gguf") == tmp_path / "m.gguf"


def test_link_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to("m.gguf")

    with pytest.raises(ModelNotFoundError, match="symbolic links"):
        resolve(tmp_path / "m.gguf")


def test_unreadable_file_says_permission_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    path.touch(mode=0)
    if os.access(path, os.R_OK):  # root reads everything
        monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(ModelNotFoundError, match="permission denied") as caught:
        resolve(path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a\0b.gguf", "null byte"),
        ("x" * 300 + ".gguf", "name too long"),
        ("d/" * 3000 + "m.gguf", "name too long"),
        ("/dev/null/m.gguf", "Not a directory"),
        ("\udcff.gguf", "no such file"),
    ],
)
def test_impossible_path_is_not_found_in_printable_words(path: str, reason: str) -> None:
    with pytest.raises(ModelNotFoundError, match=reason) as caught:
        resolve(path)

    str(caught.value).encode("utf-8")


def test_io_error_carries_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeinfer.errors import ResourceError
    from edgeinfer.loader import resolve as module

    def broken_disk(path: str) -> os.stat_result:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "stat", broken_disk)
        with pytest.raises(ResourceError, match=r"m\.gguf: .*Input/output error \(errno 5\)"):
            resolve("m.gguf")
