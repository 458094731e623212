"""Read a text with a model and sum the squares of what its matrices multiply: importance matrices.

The windows are those of perplexity, of which every token counts here. The squares of a window are
summed in float64, in the order of the text, so sums do not depend on threads or on how a window is
cut into steps. After each window they are rounded to float32, which is what a file holds: going on
from one is then the same as never having stopped.
Activations are the fine ones: the sums are then within 0.1 % of those of the float32 model.
"""

import os
from collections.abc import Callable
from hashlib import blake2b
from types import TracebackType
from typing import Self

import numpy as np

from edgeinfer.errors import NonFiniteError
from edgeinfer.evaluating.window_model import WindowModel
from edgeinfer.evaluating.windows import Windows, cut
from edgeinfer.program.ops import ExpertLinear, Linear
from edgeinfer.program.program import Program
from edgeinfer.quant.imatrix import Imatrix, Sums
from edgeinfer.quant.roles import OUTPUT

Progress = Callable[[int, int], None]  # windows done, of windows


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
    """A model compiled to be watched, and what was seen; owns the model until `close`."""

    def __init__(
        self,
        path_or_name: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        output: bool = False,
        n_threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        self._sums: dict[str, Sums] = {}

        def observe(program: Program) -> dict[str, Sums]:
            self._sums = _empty_sums(program, output=output)
            return self._sums

        self._model = WindowModel(
            path_or_name, n_ctx=n_ctx, n_threads=n_threads, backend=backend, observe=observe
        )
        self.n_ctx = self._model.n_ctx
        self._origin = blake2b(self._model.fingerprint, digest_size=16)
        self._origin.update(f"{self.n_ctx} {output}".encode())
        self._n_read = 0

    def windows(self, text: str, *, most: int | None = None) -> Windows:
        """Return the windows of a text."""
        return cut(self._model.tokenizer, text, n_ctx=self.n_ctx, most=most)

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
        """Read one window. All rows of logits are asked for: the last layer computes only such."""
        for _ in self._model.stream_logits(ids):
            pass
        for sums in self._sums.values():
            with np.errstate(over="ignore"):  # infinity is refused by `imatrix`
                sums.squares[...] = sums.squares.astype(np.float32)
        self._origin.update(np.array(ids, np.int32).tobytes())
        self._n_read += 1

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
        self._model.close()

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
