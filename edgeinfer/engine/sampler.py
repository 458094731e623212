"""Choose the tokens of one sequence from rows of logits: in C where compiled, else in NumPy."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from edgeinfer.engine.sampling import SamplingParams, draw_seed
from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.native.isa import why_unavailable

MOST_LOGPROBS = 64


class _Chooser(Protocol):
    def sample(
        self, logits: np.ndarray, history: np.ndarray, position: int, n_top: int
    ) -> tuple[int, float, list[tuple[int, float]]]: ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, ln of its probability under the model alone, and the most probable tokens.

    "Alone" is before bias, penalties and temperature; `top` holds (id, logprob), best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """Draw the tokens of one sequence; equal seeds, logits and positions give equal tokens.

    It holds mirostat's state and scratch for one row, so a sequence has its own, used by one thread
    at a time.

    Args:
        params: how to choose.
        n_vocab: logits in a row.

    Attributes:
        seed: the seed in use, drawn when params.seed is None or -1.

    Raises:
        InvalidParameterError: a bias or breaker names a token outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        params.check_vocabulary(n_vocab)
        self.seed = draw_seed(params)
        self._n_vocab = n_vocab
        self._history_len = params.history_len
        values = asdict(params) | {"seed": self.seed}
        bias, breakers = values.pop("logit_bias"), values.pop("dry_breakers")
        self._chooser: _Chooser
        if why_unavailable() is None:
            from edgeinfer.kernels.native.sampler import NativeSampler

            self._chooser = NativeSampler(n_vocab, values, bias, breakers)
        else:
            from edgeinfer.engine.sampling_numpy import NumpySampler

            self._chooser = NumpySampler(n_vocab, values, bias, breakers)

    def sample(self, logits: np.ndarray, history: Sequence[int] | np.ndarray, position: int) -> int:
        """Choose the next token.

        Args:
            logits: (n_vocab,) float32; -inf masks a token. Not changed.
            history: the ids of the sequence so far, prompt included.
            position: of the chosen token in its sequence; it selects the random numbers.

        Raises:
            NonFiniteError: NaN or +inf among the logits.
            InvalidParameterError: every token is banned, or an id of the history is outside the
                vocabulary.
        """
        return self._sample(logits, history, position, -1)[0]

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Sequence[int] | np.ndarray, position: int, n_top: int
    ) -> Sampled:
        """Choose the same token as `sample`, and report it and the n_top (0 to 64) likeliest.

        Raises:
            InvalidParameterError: also where n_top is out of range.
        """
        if not 0 <= n_top <= MOST_LOGPROBS:
            raise InvalidParameterError(f"n_top: found {n_top} (allowed: 0 to {MOST_LOGPROBS})")
        token, logprob, top = self._sample(logits, history, position, min(n_top, self._n_vocab))
        return Sampled(token, logprob, tuple(top))

    def _sample(
        self, logits: np.ndarray, history: Sequence[int] | np.ndarray, position: int, n_top: int
    ) -> tuple[int, float, list[tuple[int, float]]]:
        if logits.shape != (self._n_vocab,) or logits.dtype != np.float32:
            raise InvalidParameterError(
                f"logits: found {logits.dtype} {logits.shape} (need float32 ({self._n_vocab},))"
            )
        n_read = self._history_len
        window = history if n_read < 0 else history[max(0, len(history) - n_read) :]
        return self._chooser.sample(
            np.ascontiguousarray(logits),
            np.ascontiguousarray(window, dtype=np.int32),
            position,
            n_top,
        )
