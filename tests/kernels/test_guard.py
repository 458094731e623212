"""A mapped file that is shortened under its reader is an error there, and no end of the process."""

import faulthandler
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import ResourceError
from edgeinfer.kernels.backend import Limits
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.native.guard import Guard, _numbers
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.mapped import map_file
from edgeinfer.model import load
from tests.arch import tiny
from tests.gguf_writer import write_gguf
from tests.kernels.kl import run_tokens

pytest.importorskip("edgeinfer.kernels.native._native")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="no such signal here")

LIMITS = Limits(n_ctx=64, n_pages=2, n_batch=64, n_threads=2)
LOST = r"tiny\.gguf: the model file changed on disk while it was used, .* part of it cannot be"
Made = tuple[Path, GgufFile]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    path = write_gguf(tmp_path / "tiny.gguf", *tiny.llama(n_embd=256, n_ff=1024))
    return path, open_gguf(path)


def compiled(file: GgufFile):
    program = build_program(file.metadata, file.tensors, n_ctx=64)
    return BACKEND.compile(program, file.tensors, LIMITS)


def test_a_step_on_a_shortened_file_fails_and_other_models_go_on(made: Made, tmp_path: Path):
    path, file = made
    other = open_gguf(shutil.copy(path, tmp_path / "other.gguf"))
    executable, beside = compiled(file), compiled(other)
    rows = run_tokens(executable, [1, 2, 3], [2]).copy()
    os.truncate(path, 0)

    for _ in range(2):
        with pytest.raises(ResourceError, match=LOST):
            run_tokens(executable, [1, 2, 3], [2])
    assert (run_tokens(beside, [1, 2, 3], [2]) == rows).all()
    path.write_bytes(other.path.read_bytes())  # whole again, and loaded beside its lost self
    assert (run_tokens(compiled(open_gguf(path)), [1, 2, 3], [2]) == rows).all()


def test_laying_out_a_shortened_file_fails(made: Made):
    path, file = made
    os.truncate(path, file.tensors["blk.0.ffn_down.weight"].data.nbytes // 2)
    with pytest.raises(ResourceError, match=LOST):
        compiled(file)


def test_packing_a_shortened_file_fails(made: Made):
    path, file = made
    program = build_program(file.metadata, file.tensors, n_ctx=64)
    matrices = BACKEND.matrices(program, file.tensors)
    os.truncate(path, 0)
    with pytest.raises(ResourceError, match=LOST):
        for matrix in matrices:
            list(matrix.pieces())


@pytest.mark.parametrize("pack", [False, "write"])
def test_an_answer_ends_with_the_error(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: bool | str
):
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path))
    path = shutil.copy(smollm2_path, tmp_path / "mine.gguf")
    with load(path, n_ctx=128, pack=pack, speculate=False) as model:
        stream = model.stream("Once upon a time", temperature=0)
        next(stream)
        lost = next(tmp_path.glob("packs/*.pack")) if pack else path
        os.truncate(lost, 0)
        with pytest.raises(ResourceError, match=f"{Path(lost).name}: the model file changed"):
            list(stream)
        with pytest.raises(ResourceError, match=Path(lost).name):
            model.generate("again", max_tokens=1)


def test_what_is_behind_the_end_reads_as_zeros_once_watched(made: Made):
    path, file = made
    whole, _ = map_file(path)
    guard = Guard([whole[10:20], whole, np.zeros(3, np.uint8)])
    guard.check()
    os.truncate(path, 4096)
    assert not whole[4096:].any()
    assert whole[:4].tobytes() == b"GGUF"
    with pytest.raises(ResourceError, match=LOST):
        guard.check()
    file.close()


ELSEWHERE = """
import sys
sys.path[:0] = [{root!r}]
from tests.kernels.test_guard import elsewhere
elsewhere({order!r})
"""


def elsewhere(order: str) -> None:
    """Read, in a process of its own, behind the end of a file that nobody watches."""
    if order == "before":
        faulthandler.enable()
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(bytes(8192))
        temporary.flush()
        whole, _ = map_file(temporary.name, lambda *about: None)
        Guard([whole])
        if order == "after":
            faulthandler.enable()
            Guard([map_file(temporary.name, lambda *about: None)[0]])
        alone = mmap.mmap(temporary.fileno(), 8192, access=mmap.ACCESS_READ)
        temporary.truncate(0)
        assert not whole[5000]
        print("alive", flush=True)
        if order == "killed":
            os.kill(os.getpid(), signal.SIGBUS)
        alone[5000]
    print("not reached")


@pytest.mark.parametrize("order", ["none", "before", "after", "killed"])
def test_a_fault_elsewhere_is_left_to_whom_it_concerns(order: str):
    script = ELSEWHERE.format(root=str(Path.cwd()), order=order)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "alive\n")
    assert ("Fatal Python error: Bus error" in done.stderr) == (order in ("before", "after"))


def test_a_guard_goes_with_its_map(made: Made):
    path, _ = made
    whole, _ = map_file(path)
    before = len(_numbers)
    Guard([whole])
    assert len(_numbers) == before + 1
    del whole
    assert len(_numbers) == before
