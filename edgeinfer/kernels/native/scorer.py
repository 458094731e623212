"""Score a token in C: a row of logits goes in, log-probabilities come out."""

import numpy as np

from edgeinfer.errors import InvalidParameterError, NonFiniteError, ResourceError
from edgeinfer.kernels.native._native import ffi, lib


def score_row(logits: np.ndarray, token: int, n_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the log-probability of `token`, and the n_top best ids with theirs.

    Args:
        logits: (n_vocab,) float32, contiguous.
        token: an id below n_vocab.
        n_top: 0 to EI_MOST_LOGPROBS, and at most n_vocab.
    """
    logprob = ffi.new("double *")
    ids, logprobs = ffi.new("int32_t[]", max(1, n_top)), ffi.new("double[]", max(1, n_top))
    row = ffi.from_buffer("float[]", logits)
    code = lib.ei_score(row, len(logits), token, n_top, logprob, ids, logprobs)
    if code == lib.EI_NO_MEMORY:
        raise ResourceError(f"logits: no memory to score {len(logits)} of them")
    if code == lib.EI_NON_FINITE:
        raise NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
    if code:
        raise InvalidParameterError(
            f"token, n_top: found {token} and {n_top} (need 0 to {len(logits) - 1}, and 0 to "
            f"{lib.EI_MOST_LOGPROBS})"
        )
    return logprob[0], [(ids[i], logprobs[i]) for i in range(n_top)]
