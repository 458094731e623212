"""Cut a text into the windows a model is measured on, in the way of llama-perplexity.

The text's tokens are cut into windows of n_ctx, the rest is left out. Each window is read by
itself: where the vocabulary adds BOS, its first token is replaced by BOS. Only the second half
counts, so that every token that does was predicted from at least half a window.
"""

from dataclasses import dataclass

from edgeinfer.errors import InvalidParameterError
from edgeinfer.llm import Model

DEFAULT_CTX = 512
LEAST_CTX = 4  # below it, no token of the second half is predicted


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `n_ctx` token ids, as they are read; rows `first` to `n_ctx - 2` predict."""

    n_ctx: int
    ids: tuple[tuple[int, ...], ...]

    @property
    def first(self) -> int:
        """The first row whose prediction counts."""
        return self.n_ctx // 2

    def labels(self, index: int) -> tuple[int, ...]:
        """Return the ids that the rows of window `index` should predict."""
        return self.ids[index][self.first + 1 :]


def cut(model: Model, text: str, *, n_ctx: int | None, most: int | None) -> Windows:
    """Return the windows of a text, at most `most` of them.

    Raises InvalidParameterError if the model cannot read so long a window, or the text does not
    fill one.
    """
    n_ctx = min(DEFAULT_CTX, model.n_ctx) if n_ctx is None else n_ctx
    if not LEAST_CTX <= n_ctx <= model.n_ctx:
        raise InvalidParameterError(
            f"n_ctx: found {n_ctx} (need {LEAST_CTX} to {model.n_ctx}, the model's context)"
        )
    if most is not None and most < 1:
        raise InvalidParameterError(f"chunks: found {most} (need at least 1, or None for all)")
    ids = model.tokenize(text)
    n_windows = len(ids) // n_ctx
    if n_windows == 0:
        raise InvalidParameterError(
            f"text: found {len(ids)} tokens (need at least {n_ctx}, one window); "
            "give a longer text or a smaller n_ctx"
        )
    if most is not None:
        n_windows = min(n_windows, most)
    bos_id = model.tokenizer.bos_id
    head = (bos_id,) if model.tokenizer.add_bos and bos_id is not None else ()
    starts = range(0, n_windows * n_ctx, n_ctx)
    windows = [(*head, *ids[at + len(head) : at + n_ctx]) for at in starts]
    return Windows(n_ctx, tuple(windows))
