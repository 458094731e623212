"""Offer the token by token calls of llama-cpp-python: eval, sample, generate, states."""

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.compat.llama_cpp.errors import LlamaValueError, translated
from edgeinfer.compat.llama_cpp.forms import grammar_of
from edgeinfer.compat.llama_cpp.processors import LogitsProcessor, StoppingCriteria
from edgeinfer.engine.constrained import ConstrainedSampler
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.sequence import TokenSampler
from edgeinfer.model import Model
from edgeinfer.text.matching import Matcher


@dataclass(frozen=True, slots=True, eq=False)
class LlamaState:
    """What was evaluated; keys and values are found again by the ids, or computed again."""

    input_ids: npt.NDArray[np.intc]
    scores: npt.NDArray[np.single]
    n_tokens: int
    llama_state: bytes
    llama_state_size: int
    seed: int


class Evaluation:
    """The ids evaluated so far, and the logits after them."""

    edgeinfer: Model
    last_n_tokens_size: int
    _logits_all: bool
    _seed: int

    def _begin(self) -> None:
        self._ids: list[int] = []
        self._scores_made: npt.NDArray[np.single] | None = None

    @property
    def n_tokens(self) -> int:
        """How many ids were evaluated."""
        return len(self._ids)

    @property
    def input_ids(self) -> npt.NDArray[np.intc]:
        """The ids evaluated, and zeros up to the length of the context."""
        ids = np.zeros(self.edgeinfer.n_ctx, np.intc)
        ids[: len(self._ids)] = self._ids
        return ids

    @property
    def scores(self) -> npt.NDArray[np.single]:
        """Logits (n_ctx, n_vocab) after each evaluated id; without logits_all, each call's last."""
        if self._scores_made is None:  # memory is taken as rows are written
            shape = (self.edgeinfer.n_ctx, self.edgeinfer.n_vocab)
            self._scores_made = np.zeros(shape, np.single)
        return self._scores_made

    @property
    def eval_tokens(self) -> deque[int]:
        """The ids evaluated."""
        return deque(self._ids)

    @property
    def eval_logits(self) -> deque[list[float]]:
        """The rows of `scores` there are, as lists; one if not logits_all."""
        n_rows = len(self._ids) if self._logits_all else min(1, len(self._ids))
        return deque(self.scores[len(self._ids) - n_rows : len(self._ids)].tolist())

    def reset(self) -> None:
        """Forget what was evaluated."""
        self._ids = []

    def eval(self, tokens: Iterable[int]) -> None:
        """Evaluate ids behind those evaluated so far."""
        first = len(self._ids)
        ids = [*self._ids, *map(int, tokens)]
        if len(ids) == first:
            return
        with translated():
            if self._logits_all:
                self.scores[first : len(ids)] = self.edgeinfer.logits(ids)[first:]
            else:
                self.scores[len(ids) - 1] = self.edgeinfer.next_logits(ids)
        self._ids = ids

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_eta: float = 0.1,
        mirostat_tau: float = 5.0,
        penalize_nl: bool = True,
        logits_processor: Iterable[LogitsProcessor] | None = None,
        grammar: Any = None,
        idx: int | None = None,
    ) -> int:
        """Choose an id by the logits after the last one evaluated, or after number `idx`.

        With a grammar it is one that an answer can begin with; `generate` goes on in it.
        """
        at = len(self._ids) - 1 if idx is None else idx
        if not 0 <= at < len(self._ids):
            raise LlamaValueError(f"sample: idx: found {at} (need 0 to {len(self._ids) - 1})")
        with translated():
            params = SamplingParams(
                top_k=max(top_k, 0),
                top_p=top_p,
                min_p=min_p,
                typical_p=typical_p,
                temperature=temp,
                repeat_penalty=repeat_penalty,
                frequency_penalty=frequency_penalty,
                presence_penalty=presence_penalty,
                penalty_last_n=self.last_n_tokens_size,
                mirostat=mirostat_mode,
                mirostat_eta=mirostat_eta,
                mirostat_tau=mirostat_tau,
                seed=self._seed,
            )
            row, ids = self.scores[at].copy(), self._ids[: at + 1]
            sampler: TokenSampler = Sampler(params, self.edgeinfer.n_vocab)
            matcher = grammar if isinstance(grammar, Matcher) else self._matcher(grammar)
            if matcher is not None and matcher.is_done:
                return self._end()
            if matcher is not None:
                sampler = ConstrainedSampler(sampler, matcher)
            for processor in logits_processor or ():
                row = np.asarray(processor(np.array(ids, np.intc), row), np.single)
            return sampler.sample(row, ids, len(ids))

    def generate(
        self,
        tokens: Sequence[int],
        *,
        reset: bool = True,
        stopping_criteria: Iterable[StoppingCriteria] | None = None,
        **sampling: Any,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Yield ids that follow `tokens`; what is sent is evaluated behind the one yielded.

        `sampling` are the arguments of `sample`. Where a grammar's text is complete, ids that end
        an answer follow.
        """
        if reset:
            self.reset()
        self.eval(tokens)
        with translated():
            matcher = self._matcher(sampling.pop("grammar", None))
        while True:
            token = self.sample(**sampling, grammar=matcher)
            seen, row = np.array(self._ids, np.intc), self.scores[len(self._ids) - 1]
            if any(criterion(seen, row) for criterion in stopping_criteria or ()):
                return
            sent = yield token
            self.eval([token, *(sent or ())])

    def _matcher(self, grammar: Any) -> Matcher | None:
        """Return what holds an answer to an argument `grammar`, from its beginning."""
        form = grammar_of(grammar)
        return None if form is None else self.edgeinfer.matcher(form)

    def _end(self) -> int:
        """Return the id that ends an answer."""
        tokenizer = self.edgeinfer.tokenizer
        eos_id = tokenizer.eos_id
        return eos_id if eos_id is not None else min(tokenizer.stop_ids, default=-1)

    def save_state(self) -> LlamaState:
        """Return what `load_state` restores."""
        n = len(self._ids)
        return LlamaState(self.input_ids, self.scores[:n].copy(), n, b"", 0, self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Go back to what was evaluated when `state` was saved."""
        self._ids = [int(id) for id in state.input_ids[: state.n_tokens]]
        self.scores[: state.n_tokens] = state.scores
        self._seed = state.seed
