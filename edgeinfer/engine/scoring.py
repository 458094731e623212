"""Tell how likely a given token was under a row of logits, to the bits of the samplers."""

import numpy as np

from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sampling_numpy import exp_neg, lane_sum, log_of
from edgeinfer.errors import NonFiniteError


def score(logits: np.ndarray, token: int, n_top: int) -> Sampled:
    """Report `token` under one row of logits as `Sampler.sample_with_logprobs` reports its choice.

    Args:
        logits: (n_vocab,) float32.
        token: an id below n_vocab.
        n_top: how many of the likeliest tokens to list; of equal ones the lowest id comes first.

    Raises:
        NonFiniteError: NaN or infinity among the logits.
    """
    if not np.isfinite(logits).all():
        raise NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
    first = float(logits.max())
    offsets = logits.astype(np.float64) - first
    log_mass = log_of(lane_sum(exp_neg(offsets)))
    top = tuple((int(id), float(offsets[id]) - log_mass) for id in _likeliest(logits, n_top))
    return Sampled(token, float(offsets[token]) - log_mass, top)


def _likeliest(logits: np.ndarray, n: int) -> np.ndarray:
    n = min(n, len(logits))
    if n == 0:
        return np.empty(0, np.int64)
    least = np.partition(logits, len(logits) - n)[len(logits) - n]
    ids = np.flatnonzero(logits >= least)
    return ids[np.argsort(-logits[ids], kind="stable")][:n]
