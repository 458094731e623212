"""Measure how far a model's predictions are from another's, both read side by side."""

from collections.abc import Iterator
from collections.abc import Sequence as Ids
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating.measured import Measured, Progress, exp_of, mean_of, root_of
from edgeinfer.evaluating.rows import Compared, Logits, compare
from edgeinfer.evaluating.saved_logits import SavedLogits, saving
from edgeinfer.evaluating.windows import Windows, cut, window_len
from edgeinfer.text.tokenizer import Tokenizer


class Predictor(Protocol):
    """A model that predicts tokens: what `edgeinfer.load` returns is one, `WindowModel` another."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def n_vocab(self) -> int:
        """Length of a row of logits."""
        ...

    @property
    def n_ctx(self) -> int:
        """Most tokens it reads."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        ...

    def stream_logits(
        self, ids: tuple[int, ...], *, first: int = 0
    ) -> Iterator[tuple[int, Logits]]:
        """Yield rows of logits from `first` on, each part with the index of its first row."""
        ...


@dataclass(frozen=True, slots=True)
class Divergence:
    """What `divergence` measured; p is the reference's prediction, q the model's.

    kld: mean of KL(p || q) in nats, over `n_tokens` tokens of `n_chunks` windows of `n_ctx`; then
    its percentiles. top1_agreement: share of tokens where both find the same one likeliest. dp:
    mean of what the model gave the token that came more than the reference, rms_dp its root mean
    square. ln_ppl_ratio: log of ppl / ppl_reference, whose error is smaller than that of either.
    """

    kld: Measured
    median: float
    p90: float
    p99: float
    p999: float
    max: float
    top1_agreement: Measured
    dp: Measured
    rms_dp: Measured
    ppl_reference: Measured
    ppl: Measured
    ln_ppl_ratio: Measured
    n_tokens: int
    n_chunks: int
    n_ctx: int


def divergence(
    reference: Predictor | SavedLogits,
    model: Predictor,
    text: str | None = None,
    *,
    n_ctx: int | None = None,
    chunks: int | None = None,
    save_to: Path | None = None,
    progress: Progress | None = None,
) -> Divergence:
    """Measure KL(reference || model) on a text, with llama-perplexity's windows.

    Both models read a window one after the other; nothing is kept on disk unless it is wanted.

    Args:
        reference: the model that counts as right, with the same tokenizer as `model`, or what it
            said before.
        model: the model to judge.
        text: what to predict; not needed with saved logits, which hold it.
        n_ctx, chunks: as `perplexity` has them.
        save_to: a file to keep the reference's predictions in, 2 bytes a token of the vocabulary
            for each token that counts.
        progress: called as progress(n_done, n_chunks, kld_so_far) after each window; what it raises
            ends the measurement.

    Raises:
        InvalidParameterError: an argument is out of its range, the text fills no window, or the two
            models have different tokens.
        NonFiniteError: a model computed NaN or infinity.
        ModelFormatError: the saved logits are damaged.
        ResourceError: the reference's predictions cannot be written.
    """
    windows = _windows(reference, model, text, n_ctx, chunks)
    parts: list[Compared] = []
    with ExitStack() as stack:
        writer = None
        if save_to is not None:
            writer = stack.enter_context(saving(save_to, windows, reference.n_vocab))
        for index, ids in enumerate(windows.ids):
            labels = windows.labels(index)
            p_rows = _reference_rows(reference, windows, index)
            if writer is not None:
                writer.add(p_rows)
            for first, q_rows in model.stream_logits(ids[:-1], first=windows.first):
                part = slice(first - windows.first, first - windows.first + len(q_rows))
                parts.append(compare(p_rows[part], q_rows, labels[part]))
            if progress is not None:
                progress(index + 1, len(windows.ids), _mean_kld(parts))
    return summary(parts, windows)


def _windows(
    reference: Predictor | SavedLogits,
    model: Predictor,
    text: str | None,
    n_ctx: int | None,
    chunks: int | None,
) -> Windows:
    """Return the windows both read. Raises InvalidParameterError if their tokens differ."""
    names = f"{reference.path.name} and {model.path.name}"
    if reference.n_vocab != model.n_vocab:
        raise InvalidParameterError(
            f"{names}: found {reference.n_vocab} and {model.n_vocab} tokens in the vocabularies "
            "(need the same tokenizer: predictions of different tokens cannot be compared)"
        )
    if isinstance(reference, SavedLogits):
        windows = reference.windows(n_ctx=n_ctx, most=chunks)
        window_len(windows.n_ctx, model.n_ctx)
        if text is None:
            return windows
    else:
        n_ctx = window_len(n_ctx, min(reference.n_ctx, model.n_ctx))
        if text is None:
            raise InvalidParameterError("text: found none (need one, unless logits were saved)")
        windows = cut(reference.tokenizer, text, n_ctx=n_ctx, most=chunks)
    if cut(model.tokenizer, text, n_ctx=windows.n_ctx, most=len(windows.ids)) != windows:
        raise InvalidParameterError(
            f"{names}: found different token ids for the text (need the same tokenizer and text)"
        )
    return windows


def _reference_rows(reference: Predictor | SavedLogits, windows: Windows, index: int) -> Logits:
    if isinstance(reference, SavedLogits):
        return reference.rows(index)
    return rows_of(reference, windows, index)


def rows_of(model: Predictor, windows: Windows, index: int) -> Logits:
    """Return the rows of a window that count."""
    rows = model.stream_logits(windows.ids[index][:-1], first=windows.first)
    return np.concatenate([part for _, part in rows])


def _mean_kld(parts: Ids[Compared]) -> float:
    return mean_of(np.concatenate([part.kld for part in parts])).value


def summary(parts: Ids[Compared], windows: Windows) -> Divergence:
    """Return the figures of all tokens."""
    kld = np.concatenate([part.kld for part in parts])
    nll_p = np.concatenate([part.nll_p for part in parts])
    nll_q = np.concatenate([part.nll_q for part in parts])
    dp = np.exp(-nll_q) - np.exp(-nll_p)
    median, p90, p99, p999, most = np.percentile(kld, (50, 90, 99, 99.9, 100)).tolist()
    return Divergence(
        kld=mean_of(kld),
        median=median,
        p90=p90,
        p99=p99,
        p999=p999,
        max=most,
        top1_agreement=mean_of(np.concatenate([part.same for part in parts])),
        dp=mean_of(dp),
        rms_dp=root_of(mean_of(dp * dp)),
        ppl_reference=exp_of(mean_of(nll_p)),
        ppl=exp_of(mean_of(nll_q)),
        ln_ppl_ratio=mean_of(nll_q - nll_p),
        n_tokens=len(kld),
        n_chunks=len(windows.ids),
        n_ctx=windows.n_ctx,
    )
