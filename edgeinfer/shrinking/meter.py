"""Tell how far models are from a source whose predictions of a text are kept in a file.

The source is read once; then one model at a time is in memory.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from edgeinfer.evaluating.divergence import Divergence, divergence, rows_of
from edgeinfer.evaluating.saved_logits import SavedLogits, saving
from edgeinfer.evaluating.window_model import WindowModel
from edgeinfer.evaluating.windows import cut
from edgeinfer.quant.tensor import Tensor

Progress = Callable[[str, int, int], None]  # what is done, how much of it, how much in all


class Meter:
    """What a source predicts of a text, and models beside it; owns the file until `close`."""

    def __init__(
        self,
        source: Path,
        text: str,
        kept: Path,
        *,
        chunks: int | None,
        n_threads: int,
        progress: Progress,
    ) -> None:
        """Read the text with the source, and keep what it predicts in the file `kept`.

        Raises InvalidParameterError if the text fills no window; others as `WindowModel` and
        `saving`.
        """
        self.source, self._n_threads = source, n_threads
        with WindowModel(source, n_threads=n_threads) as model:
            windows = cut(model.tokenizer, text, n_ctx=model.n_ctx, most=chunks)
            n_windows = len(windows.ids)
            with saving(kept, windows, model.n_vocab) as writer:
                for index in range(n_windows):
                    progress("reading the source", index, n_windows)
                    writer.add(rows_of(model, windows, index))
        progress("reading the source", n_windows, n_windows)
        self._kept = SavedLogits(kept)

    def divergence_of(self, path: Path, progress: Progress) -> Divergence:
        """Measure how far a file is from the source."""
        with WindowModel(path, n_ctx=self._kept.n_ctx, n_threads=self._n_threads) as model:
            return divergence(
                self._kept, model, progress=lambda n, of, _: progress("measuring", n, of)
            )

    def divergence_with(self, replaced: Mapping[str, Tensor]) -> Divergence:
        """Measure how far the source is from itself with some weights replaced."""
        with WindowModel(
            self.source, n_ctx=self._kept.n_ctx, n_threads=self._n_threads, replaced=replaced
        ) as model:
            return divergence(self._kept, model)

    def close(self) -> None:
        """Close the file."""
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
