"""Score a token in NumPy, where nothing is compiled, to the bits of csrc/sample_score.c."""

import numpy as np

from edgeinfer.engine.sampler import MOST_LOGPROBS
from edgeinfer.engine.sampling_numpy import exp_neg, lane_sum, log_of
from edgeinfer.errors import InvalidParameterError, NonFiniteError


def score_row(logits: np.ndarray, token: int, n_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the log-probability of `token`, and the n_top best ids with theirs.

    Args:
        logits: (n_vocab,) float32, contiguous.
        token: an id below n_vocab.
        n_top: 0 to MOST_LOGPROBS, and at most n_vocab.
    """
    if not (0 <= token < len(logits) and 0 <= n_top <= MOST_LOGPROBS):
        raise InvalidParameterError(
            f"token, n_top: found {token} and {n_top} (need 0 to {len(logits) - 1}, and 0 to "
            f"{MOST_LOGPROBS})"
        )
    if not np.isfinite(logits).all():
        raise NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
    first = float(logits.max())
    offsets = logits.astype(np.float64) - first
    log_mass = log_of(lane_sum(exp_neg(offsets)))
    top = [(int(id), float(offsets[id]) - log_mass) for id in _likeliest(logits, n_top)]
    return float(offsets[token]) - log_mass, top


def _likeliest(logits: np.ndarray, n: int) -> np.ndarray:
    if n == 0:
        return np.empty(0, np.int64)
    least = np.partition(logits, len(logits) - n)[len(logits) - n]
    ids = np.flatnonzero(logits >= least)
    return ids[np.argsort(-logits[ids], kind="stable")][:n]
