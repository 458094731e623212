"""Turn one row of raw logits into the log-probabilities a caller asked for."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probabilities at one position, of the raw logits: before bias and penalties.

    `top` holds (id, log-probability) of the likeliest ids, best first, the lower id first among
    equals; `token_id` need not be one of them.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprob(logits: npt.NDArray[np.float32], token_id: int, n_top: int) -> TokenLogprob:
    """Return the log-softmax of one row `(n_vocab,)` at `token_id` and at its `n_top` best ids."""
    row = logits.astype(np.float64)
    row -= row.max()
    row -= np.log(np.exp(row).sum())
    n_top = min(n_top, len(row))
    top: npt.NDArray[np.intp] = np.empty(0, np.intp)
    if n_top:
        # Every id at least as likely as the n-th, so that ties are cut by id and not by chance.
        least = np.partition(row, len(row) - n_top)[len(row) - n_top]
        candidates = np.flatnonzero(row >= least)
        top = candidates[np.argsort(-row[candidates], kind="stable")][:n_top]
    pairs = tuple((int(id), float(row[id])) for id in top)
    return TokenLogprob(token_id, float(row[token_id]), pairs)
