"""Read a text with a model and sum the squares of what its matrices multiply: importance matrices.

The windows are those of perplexity, of which every token counts here. Sums are kept in float64, in
the order of the text, so they do not depend on threads or on how a window is cut into steps.
Activations are the fine ones: the sums are then within 0.1 % of those of the float32 model.
"""

import os
from collections.abc import Callable
from hashlib import blake2b
from types import TracebackType
from typing import Self

import numpy as np

from edgeinfer import packing
from edgeinfer.arch import build_program
from edgeinfer.errors import NonFiniteError
from edgeinfer.evaluating.windows import Windows, cut, window_len
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Limits, choose
from edgeinfer.loader.fingerprint import fingerprint
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.resolve import resolve
from edgeinfer.program.ops import ExpertLinear, Linear
from edgeinfer.program.program import Program
from edgeinfer.quant.imatrix import Imatrix, Sums
from edgeinfer.sizing import check_room
from edgeinfer.text.tokenizer import tokenizer_from_metadata

Progress = Callable[[int, int], None]  # windows done, of windows

OUTPUT = "output.weight"
MOST_BATCH = 512  # tokens of a step; the rows of logits of more would take gigabytes


def importance(
    path_or_name: str | os.PathLike[str],
    text: str,
    *,
    n_ctx: int | None = None,
    chunks: int | None = None,
    output: bool = False,
    dataset: str = "",
    n_threads: int | None = None,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Imatrix:
    """Return the importance matrix of a model on a text.

    Args:
        path_or_name: the model, as `load` has it.
        text: what to read, at least n_ctx tokens of it.
        n_ctx: length of a window in tokens, 4 to what the model was trained for; None: 512.
        chunks: most windows to read; None: all.
        output: sum the inputs of the output matrix too; quantizers do better without.
        dataset: the name of the text, which the matrix bears.
        n_threads: as `load` has it.
        backend: "auto", "native" or "reference".
        progress: called as progress(n_done, n_chunks) after each window; what it raises ends it.

    Raises:
        InvalidParameterError: an argument is out of its range, or the text fills no window.
        NonFiniteError: the model computed NaN or infinity.
        Others as `load`.
    """
    with Observer(
        path_or_name, n_ctx=n_ctx, output=output, n_threads=n_threads, backend=backend
    ) as observer:
        windows = observer.windows(text, most=chunks)
        for done, ids in enumerate(windows.ids, 1):
            observer.read(ids)
            if progress is not None:
                progress(done, len(windows.ids))
        return observer.imatrix(dataset)


class Observer:
    """A model compiled to be watched; owns the file and the executable until `close`."""

    def __init__(
        self,
        path_or_name: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        output: bool = False,
        n_threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        kernels = choose(backend)
        self._file = open_gguf(resolve(path_or_name))
        metadata, tensors = self._file.metadata, self._file.tensors
        self.n_ctx = window_len(n_ctx, metadata.integer(".context_length", least=1))
        program = build_program(metadata, tensors, n_ctx=self.n_ctx)
        self._sums = _empty_sums(program, output=output)
        self._tokenizer = tokenizer_from_metadata(metadata, where=str(self._file.path))
        n_pages = -(-self.n_ctx // PAGE_LEN)
        whole = program.takes_whole_sequences
        self._n_batch = self.n_ctx if whole else min(self.n_ctx, MOST_BATCH)
        limits = Limits(
            n_ctx=self.n_ctx,
            n_pages=n_pages,
            n_batch=self._n_batch,
            n_threads=n_threads or 0,
            activations="fine",
        )
        self._has_state = bool(program.recurrent)
        packed = packing.find(self._file, kernels)
        if packed is None:
            check_room(self._file, program, kernels)
        self._executable = kernels.compile(
            program, tensors, limits, packed=packed, observe=self._sums
        )
        self._origin = blake2b(fingerprint(self._file.parts), digest_size=16)
        self._origin.update(f"{self.n_ctx} {output}".encode())
        self._n_read = 0

    def windows(self, text: str, *, most: int | None = None) -> Windows:
        """Return the windows of a text."""
        return cut(self._tokenizer, text, n_ctx=self.n_ctx, most=most)

    def resume(self, found: Imatrix, windows: Windows) -> int:
        """Go on from what was written on the way; return how many windows that had read.

        0 says that it is of another model, another text or other options.
        """
        n_done = found.n_chunks
        if not found.origin or not 0 < n_done <= len(windows.ids):
            return 0
        origin = self._origin.copy()
        for ids in windows.ids[:n_done]:
            origin.update(np.array(ids, np.int32).tobytes())
        if origin.hexdigest() != found.origin or not self._has_shapes_of(found):
            return 0
        self._origin, self._n_read = origin, n_done
        for name, sums in found.sums.items():
            self._sums[name].squares[...] = sums.squares
            self._sums[name].counts[...] = sums.counts
        return n_done

    def _has_shapes_of(self, found: Imatrix) -> bool:
        mine = {name: sums.squares.shape for name, sums in self._sums.items()}
        return mine == {name: sums.squares.shape for name, sums in found.sums.items()}

    def read(self, ids: tuple[int, ...]) -> None:
        """Read one window."""
        for number, start in enumerate(range(0, len(ids), self._n_batch)):
            self._step(ids[start : start + self._n_batch], start, number)
        self._origin.update(np.array(ids, np.int32).tobytes())
        self._n_read += 1

    def _step(self, ids: tuple[int, ...], start: int, number: int) -> None:
        """Read a part of a window.

        All rows of logits are wanted: of the last layer, only such rows are computed. States of
        constant size go from step to step in two snapshots, by turns.
        """
        n, n_states = len(ids), int(self._has_state)
        before = number % 2
        self._executable.run(
            Batch(
                tokens=np.array(ids, np.int32),
                positions=np.arange(start, start + n, dtype=np.int32),
                sequences=np.zeros(n, np.int32),
                page_tables=np.arange(-(-(start + n) // PAGE_LEN), dtype=np.int32)[np.newaxis],
                wanted=np.arange(n, dtype=np.int32),
                snapshots=np.full(n_states, before, np.int32),
                saved_rows=np.full(n_states, n - 1, np.int32),
                saved_snapshots=np.full(n_states, 1 - before, np.int32),
            )
        )

    def imatrix(self, dataset: str = "") -> Imatrix:
        """Return what was summed so far; it grows no more.

        Raises NonFiniteError if the model computed NaN or infinity.
        """
        for name, sums in self._sums.items():
            if not np.isfinite(sums.squares).all():
                raise NonFiniteError(
                    f"tensor '{name}': found NaN or infinity among its inputs; the weights may be "
                    "damaged"
                )
        met = {
            name: Sums(sums.squares.copy(), sums.counts.copy())
            for name, sums in self._sums.items()
            if sums.counts.any()
        }
        datasets = (dataset,) if dataset else ()
        return Imatrix(met, datasets, self._n_read, self.n_ctx, self._origin.hexdigest())

    def close(self) -> None:
        """Free the model; calling it again does nothing."""
        self._executable.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _empty_sums(program: Program, *, output: bool) -> dict[str, Sums]:
    """Return sums for each matrix of the layers, and for the output if it is wanted."""
    sums = {}
    for op in program.ops:
        if isinstance(op, Linear | ExpertLinear):
            name, shape = op.weight.name, op.weight.shape
            if name.startswith("blk.") or (output and name == OUTPUT):
                n_matrices = shape[0] if isinstance(op, ExpertLinear) else 1
                sums[name] = Sums.zeros(n_matrices, shape[-1])
    return sums
