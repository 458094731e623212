"""Run the logits processors and stopping criteria of llama-cpp-python on the engine's sampling."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgeinfer.compat.llama_cpp.errors import LlamaValueError

Ids: TypeAlias = npt.NDArray[np.intc]
Logits: TypeAlias = npt.NDArray[np.single]
LogitsProcessor: TypeAlias = Callable[[Ids, Logits], Logits]
StoppingCriteria: TypeAlias = Callable[[Ids, Logits], bool]


class LogitsProcessorList(list[LogitsProcessor]):
    """Processors, applied one after another."""

    def __call__(self, input_ids: Ids, scores: Logits) -> Logits:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[StoppingCriteria]):
    """Criteria, of which one is enough."""

    def __call__(self, input_ids: Ids, logits: Logits) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


class MinTokensLogitsProcessor:
    """Keep an answer from ending before it has `min_tokens` tokens."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Ids, scores: Logits) -> Logits:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


class Processing:
    """Both kinds as one processor of the engine: a criterion that holds leaves the end alone."""

    def __init__(
        self,
        processors: Iterable[LogitsProcessor] | None,
        criteria: Iterable[StoppingCriteria] | None,
        stop_ids: Iterable[int],
    ) -> None:
        self._processors = list(processors or ())
        self._criteria = list(criteria or ())
        self._stop_ids = sorted(stop_ids)
        if self._criteria and not self._stop_ids:
            raise LlamaValueError("stopping_criteria: this model has no token that ends an answer")

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to run."""
        return bool(self._processors or self._criteria)

    def __call__(self, ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        seen = np.array(ids, np.intc)
        if any(criterion(seen, logits) for criterion in self._criteria):
            ending = np.full_like(logits, -np.inf)
            ending[self._stop_ids[0]] = 0.0
            return ending
        for processor in self._processors:
            logits = processor(seen, logits)
        return logits
