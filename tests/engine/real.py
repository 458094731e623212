"""Make engines over tiny random models on the native kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeinfer.arch import build_program
from edgeinfer.engine.draft import Draft
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.guessing import Guesser
from edgeinfer.kernels.backend import Cancel, Limits, choose
from tests.arch import tiny
from tests.engine.fakes import make_draft, unpaced

N_VOCAB = tiny.N_VOCAB
N_CTX = 512


class Recorder:
    """The likeliest id, and the bits of every row it was chosen from."""

    def __init__(self):
        self.rows = []

    def sample(self, logits, history, position):
        self.rows.append(logits.tobytes())
        return int(logits.argmax())


@contextmanager
def real_engine(
    folder: Path, *, arch: str = "llama", n_pages: int = 64, n_batch: int = 128,
    kv_type: str = "f16", n_threads: int = 1, guesser: Guesser | None = None,
    cancel: Cancel | None = None, n_snapshots: int = 64, **keys: Any,
) -> Iterator[Engine]:  # fmt: skip
    """Compile a tiny model; `keys` are metadata, as tests/arch/tiny.py takes them."""
    limits = Limits(
        n_ctx=N_CTX, n_pages=n_pages, n_batch=n_batch, n_threads=n_threads, kv_type=kv_type,
        n_snapshots=n_snapshots,
    )  # fmt: skip
    with tiny.open_model(folder, *getattr(tiny, arch)(**keys)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=N_CTX)
        executable = choose("native").compile(program, file.tensors, limits)
        try:
            engine = Engine(
                executable, limits, window=program.window, guesser=guesser, cancel=cancel
            )
            yield engine if guesser is None else unpaced(engine)
        finally:
            executable.close()


@contextmanager
def real_draft(
    folder: Path, *, arch: str = "llama", n_ctx: int = N_CTX, n_pages: int = 64,
    kv_type: str = "f16", **keys: Any,
) -> Iterator[Draft]:  # fmt: skip
    """Compile a tiny model as a draft; `keys` are as those of `real_engine`."""
    limits = Limits(n_ctx=n_ctx, n_pages=n_pages, n_batch=128, n_threads=1, kv_type=kv_type)
    folder = folder / "draft"
    folder.mkdir(exist_ok=True)
    with tiny.open_model(folder, *getattr(tiny, arch)(**keys)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        executable = choose("native").compile(program, file.tensors, limits)
        draft = make_draft(executable, limits, window=program.window)
        try:
            yield draft
        finally:
            draft.close()
