"""Cut a text into the windows a model is measured on, in the way of llama-perplexity.

The text's tokens are cut into windows of n_ctx, the rest is left out. Each window is read by
itself: where the vocabulary adds BOS, its first token is replaced by BOS. Only the second half
counts, so that every token that does was predicted from at least half a window.
"""

from dataclasses import dataclass

from edgeinfer.errors import InvalidParameterError
from edgeinfer.text.tokenizer import Tokenizer

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


def window_len(n_ctx: int | None, most_ctx: int) -> int:
    """Return how long windows are: what was asked for, or the default where a model can read it.

    Raises InvalidParameterError if it cannot read so long a window.
    """
    n_ctx = min(DEFAULT_CTX, most_ctx) if n_ctx is None else n_ctx
    if not LEAST_CTX <= n_ctx <= most_ctx:
        raise InvalidParameterError(
            f"n_ctx: found {n_ctx} (need {LEAST_CTX} to {most_ctx}, the model's context)"
            if most_ctx >= LEAST_CTX
            else f"n_ctx: found {most_ctx} (need at least {LEAST_CTX}, to predict from half of it)"
        )
    return n_ctx


def cut(tokenizer: Tokenizer, text: str, *, n_ctx: int, most: int | None) -> Windows:
    """Return the windows of a text, at most `most` of them.

    Raises InvalidParameterError if the text does not fill one.
    """
    if most is not None and most < 1:
        raise InvalidParameterError(f"chunks: found {most} (need at least 1, or None for all)")
    ids = tokenizer.encode(text)
    n_windows = len(ids) // n_ctx
    if n_windows == 0:
        raise InvalidParameterError(
            f"text: found {len(ids)} tokens (need at least {n_ctx}, one window); "
            "give a longer text or a smaller n_ctx"
        )
    if most is not None:
        n_windows = min(n_windows, most)
    bos_id = tokenizer.bos_id
    head = (bos_id,) if tokenizer.add_bos and bos_id is not None else ()
    starts = range(0, n_windows * n_ctx, n_ctx)
    windows = [(*head, *ids[at + len(head) : at + n_ctx]) for at in starts]
    return Windows(n_ctx, tuple(windows))
