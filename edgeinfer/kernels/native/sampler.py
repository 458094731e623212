"""Choose a token in C: parameters and a row of logits go in, a token id comes out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgeinfer.errors import InvalidParameterError, NonFiniteError, ResourceError
from edgeinfer.kernels.native._native import ffi, lib


class NativeSampler:
    """An ei_sampler of one sequence; not to be used by two threads at once.

    Args:
        n_vocab: length of every row of logits.
        values: the fields of ei_sampling, all of them.
        bias: token id -> what is added; -100 bans.
        breakers: token sequences DRY does not reach across.
    """

    def __init__(
        self,
        n_vocab: int,
        values: Mapping[str, float],
        bias: Mapping[int, float],
        breakers: Sequence[Sequence[int]],
    ) -> None:
        made = lib.ei_sampler_new(n_vocab)
        if made == ffi.NULL:
            raise ResourceError(f"sampler: no memory for a vocabulary of {n_vocab}")
        self._sampler: Any = ffi.gc(made, lib.ei_sampler_free)
        self._n_vocab = n_vocab
        starts = [0]
        for breaker in breakers:
            starts.append(starts[-1] + len(breaker))
        code = lib.ei_sampler_set(
            self._sampler,
            ffi.new("ei_sampling *", dict(values)),
            ffi.new("int32_t[]", list(bias)),
            ffi.new("double[]", list(bias.values())),
            len(bias),
            ffi.new("int32_t[]", [id for breaker in breakers for id in breaker]),
            ffi.new("int32_t[]", starts),
            len(breakers),
        )
        _check(code)
        self._token = ffi.new("int32_t *")
        self._logprob = ffi.new("double *")
        self._top_ids = ffi.new("int32_t[]", lib.EI_MOST_LOGPROBS)
        self._top_logprobs = ffi.new("double[]", lib.EI_MOST_LOGPROBS)

    def sample(
        self, logits: np.ndarray, history: np.ndarray, position: int, n_top: int
    ) -> tuple[int, float, list[tuple[int, float]]]:
        """Return (token, its log-probability, the n_top best with theirs); n_top -1: neither.

        Args:
            logits: (n_vocab,) float32, contiguous.
            history: (n,) int32, the sequence so far or as much of its end as the penalties read.
            position: of the token chosen; it selects the random numbers.
            n_top: -1 to EI_MOST_LOGPROBS.
        """
        code = lib.ei_sample(
            self._sampler,
            ffi.from_buffer("float[]", logits),
            ffi.from_buffer("int32_t[]", history),
            len(history),
            position,
            self._token,
            n_top,
            self._logprob,
            self._top_ids,
            self._top_logprobs,
        )
        if code:
            _check(code)
        if n_top < 0:
            return self._token[0], 0.0, []
        top = [(self._top_ids[i], self._top_logprobs[i]) for i in range(n_top)]
        return self._token[0], self._logprob[0], [pair for pair in top if pair[0] >= 0]


def _check(code: int) -> None:
    if code == lib.EI_NO_MEMORY:
        raise ResourceError("sampler: out of memory")
    if code == lib.EI_NON_FINITE:
        raise NonFiniteError("sampler: the logits hold NaN or infinity (need finite numbers)")
    if code == lib.EI_ALL_BANNED:
        raise InvalidParameterError("logit_bias: every token is banned (leave at least one)")
    if code:
        raise InvalidParameterError("sampler: a token id is outside the vocabulary")
