"""Measure how well a model predicts a text: perplexity, and how often its first guess is right."""

from dataclasses import dataclass

import numpy as np

from edgeinfer.evaluating.measured import Measured, Progress, exp_of, mean_of
from edgeinfer.evaluating.rows import negative_log_likelihoods
from edgeinfer.evaluating.windows import cut, window_len
from edgeinfer.llm import Model


@dataclass(frozen=True, slots=True)
class Perplexity:
    """What `perplexity` measured, over `n_tokens` tokens of `n_chunks` windows of `n_ctx`.

    nll: mean negative log-likelihood of a token, in nats. ppl: e to it. top1: share of tokens that
    were the likeliest.
    """

    ppl: Measured
    nll: Measured
    top1: Measured
    n_tokens: int
    n_chunks: int
    n_ctx: int


def perplexity(
    model: Model,
    text: str,
    *,
    n_ctx: int | None = None,
    chunks: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """Measure a model's perplexity on a text, with llama-perplexity's windows.

    Args:
        model: what `edgeinfer.load` returned.
        text: what to predict, at least n_ctx tokens of it.
        n_ctx: length of a window in tokens, 4 to the model's context; None: 512.
        chunks: most windows to read; None: all.
        progress: called as progress(n_done, n_chunks, ppl_so_far) after each window; what it raises
            ends the measurement.

    Raises:
        InvalidParameterError: an argument is out of its range, or the text fills no window.
        NonFiniteError: the model computed NaN or infinity.
    """
    n_ctx = window_len(n_ctx, model.n_ctx)
    windows = cut(model.tokenizer, text, n_ctx=n_ctx, most=chunks)
    nll: list[np.ndarray] = []
    hits: list[np.ndarray] = []
    for index, ids in enumerate(windows.ids):
        labels = windows.labels(index)
        for first, rows in model.stream_logits(ids[:-1], first=windows.first):
            at = first - windows.first
            part = labels[at : at + len(rows)]
            nll.append(negative_log_likelihoods(rows, part))
            hits.append(rows.argmax(axis=1) == part)
        if progress is not None:
            progress(index + 1, len(windows.ids), exp_of(mean_of(np.concatenate(nll))).value)
    mean = mean_of(np.concatenate(nll))
    return Perplexity(
        ppl=exp_of(mean),
        nll=mean,
        top1=mean_of(np.concatenate(hits)),
        n_tokens=sum(map(len, nll)),
        n_chunks=len(windows.ids),
        n_ctx=windows.n_ctx,
    )
