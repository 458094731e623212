"""Let a caller's function edit the logits of one sequence before a token is chosen from them."""

from collections.abc import Callable
from collections.abc import Sequence as Ids

import numpy as np

from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.scoring import score
from edgeinfer.engine.sequence import TokenSampler
from edgeinfer.errors import InvalidParameterError

LogitsProcessor = Callable[[Ids[int], np.ndarray], np.ndarray]  # ids so far, (n_vocab,) float32


class ProcessedSampler:
    """A sampler that sees what `processor` makes of each row of logits.

    The processor gets a row of its own, which it may change or replace. It runs on the thread of
    all sequences, so a slow one holds them up; what it raises ends its own sequence.
    Log-probabilities stay those of the model.
    """

    def __init__(self, sampler: TokenSampler, processor: LogitsProcessor) -> None:
        self._sampler = sampler
        self._processor = processor

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        """Choose the token at `position` from the processed logits."""
        return self._sampler.sample(self._processed(logits, history), history, position)

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        """Choose the same token, and report it as the model alone has it."""
        return score(logits, self.sample(logits, history, position), n_top)

    def _processed(self, logits: np.ndarray, history: Ids[int]) -> np.ndarray:
        row = np.asarray(self._processor(history, logits.copy()), dtype=np.float32)
        if row.shape != logits.shape:
            raise InvalidParameterError(
                f"logits_processor: returned an array of {row.shape} (need {logits.shape})"
            )
        return row
