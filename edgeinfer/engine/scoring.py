"""Tell how likely a given token was under a row of logits: in C where compiled, else in NumPy.

Both give the bits of the samplers.
"""

import numpy as np

from edgeinfer.engine.sampler import Sampled
from edgeinfer.kernels.native.isa import why_unavailable


def score(logits: np.ndarray, token: int, n_top: int) -> Sampled:
    """Report `token` under one row of logits as `Sampler.sample_with_logprobs` reports its choice.

    Args:
        logits: (n_vocab,) float32.
        token: an id below n_vocab.
        n_top: how many of the likeliest tokens to list, 0 to 64; of equal ones the lowest id comes
            first.

    Raises:
        NonFiniteError: NaN or infinity among the logits.
        InvalidParameterError: token or n_top is out of range.
    """
    n_top = min(n_top, len(logits))
    if why_unavailable() is None:
        from edgeinfer.kernels.native.scorer import score_row
    else:
        from edgeinfer.engine.scoring_numpy import score_row
    logprob, top = score_row(np.ascontiguousarray(logits, np.float32), token, n_top)
    return Sampled(token, logprob, tuple(top))
