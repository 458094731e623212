"""Full disks, kills and dirty memory: nothing is lost, and no byte comes from elsewhere."""

import os
import subprocess
import sys

import pytest

from edgeinfer import quantize
from edgeinfer.cli.__main__ import main
from edgeinfer.errors import ResourceError
from tests.arch import tiny
from tests.gguf_writer import write_gguf
from tests.quantizing.kills import kill_writers

pytest.importorskip("edgeinfer.kernels.native._native")

MODEL = tiny.llama(n_embd=320, n_ff=256, bias=False)


def test_killed_writers_leave_whole_files(tmp_path):
    assert kill_writers(tmp_path, 4) > 0


@pytest.mark.parametrize("at_byte", [0, 1, 5000, 400_000])
def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path, monkeypatch, capsys, at_byte):
    source = write_gguf(tmp_path / "in.gguf", *MODEL)
    target = tmp_path / "out.gguf"
    target.write_bytes(b"old")
    left = at_byte
    real = os.write

    def write(descriptor, data):
        nonlocal left
        if left <= 0:
            raise OSError(28, "No space left on device")
        n = real(descriptor, data[:left])
        left -= n
        return n

    monkeypatch.setattr("edgeinfer.writer.workplace.os.write", write)
    code = main(["quantize", str(source), str(target), "F16", "--force"])
    monkeypatch.undo()
    assert code == 4
    assert "no space left" in capsys.readouterr().err
    assert target.read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {"in.gguf", "out.gguf"}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 20 MB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(options, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_small_disk_is_told_at_once_or_when_it_is_full(tmp_path, small_disk, monkeypatch):
    metadata, arrays = tiny.llama(n_embd=1024, n_ff=4096, bias=False)
    source = write_gguf(tmp_path / "in.gguf", metadata, arrays)
    target = small_disk / "out.gguf"
    target.write_bytes(b"old")
    with pytest.raises(ResourceError, match=r"no space left: .* bytes are needed"):
        quantize(source, target, "F16", overwrite=True)
    monkeypatch.setattr("edgeinfer.quantizing.copying.check_room", lambda *args: None)
    with pytest.raises(ResourceError, match="no space left on the disk; nothing was changed"):
        quantize(source, target, "F16", overwrite=True)
    assert [path.name for path in small_disk.iterdir()] == ["out.gguf"]
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("recipe", ["F16", "Q4_K_M", "Q3_K_S"])
def test_no_byte_comes_from_memory_that_held_something_else(tmp_path, recipe):
    """The allocator fills what it hands out with another pattern in each run."""
    source = write_gguf(tmp_path / "in.gguf", *MODEL)
    program = "import sys, edgeinfer; edgeinfer.quantize(*sys.argv[1:])"
    written = set()
    for pattern in ("85", "170"):
        target = tmp_path / f"{pattern}.gguf"
        subprocess.run(
            [sys.executable, "-c", program, str(source), str(target), recipe],
            env={**os.environ, "MALLOC_PERTURB_": pattern},
            check=True,
        )
        written.add(target.read_bytes())
    assert len(written) == 1
