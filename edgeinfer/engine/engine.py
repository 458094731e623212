"""Step sequences of token ids through an executable, one token of each answer at a time.

Ids go in, events come out. Knows no text and no threads: whoever steps it is alone with it.
"""

import time
from collections.abc import Iterator
from collections.abc import Sequence as Ids

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.batch import batch_of
from edgeinfer.engine.events import Event, Finished, Progress, Rows, Token
from edgeinfer.engine.pages import PagePool
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.scheduler import Scheduler, Work
from edgeinfer.engine.sequence import FinishReason, Sequence
from edgeinfer.errors import (
    ContextOverflowError,
    InvalidParameterError,
    NonFiniteError,
)
from edgeinfer.kernels.backend import Cancel, Executable, Limits

N_KEPT = 4  # finished sequences whose pages stay for reuse
ROWS_BYTES = 64 << 20  # most logits of one step; one row is 1 MiB where the vocabulary is 262,144


class Engine:
    """The executable, its scheduler and the flag that stops a step."""

    def __init__(self, executable: Executable, limits: Limits, *, n_kept: int = N_KEPT) -> None:
        self.executable = executable
        self.limits = limits
        self.cancel = Cancel()
        n_rows = max(1, ROWS_BYTES // (4 * executable.n_vocab))
        self.scheduler = Scheduler(
            PagePool(limits.n_pages), n_batch=limits.n_batch, n_rows=n_rows, n_kept=n_kept
        )

    def check(self, tokens: Ids[int], *, max_tokens: int) -> None:
        """Raise unless a sequence of these tokens can run; touches nothing, so any thread may ask.

        Raises InvalidParameterError (no token, an id outside the vocabulary, max_tokens below 0)
        and ContextOverflowError (no room for the tokens and the first of the answer).
        """
        if not tokens:
            raise InvalidParameterError("prompt: found no tokens (need at least 1)")
        n_vocab = self.executable.n_vocab
        low, high = min(tokens), max(tokens)
        if low < 0 or high >= n_vocab:
            bad = low if low < 0 else high
            raise InvalidParameterError(
                f"prompt: token id: found {bad} (need 0 to {n_vocab - 1}, the model's vocabulary)"
            )
        if max_tokens < 0:
            raise InvalidParameterError(f"max_tokens: found {max_tokens} (need 0 or more)")
        most = self.limits.n_ctx - (1 if max_tokens else 0)
        if len(tokens) > most:
            raise ContextOverflowError(
                f"prompt: found {len(tokens)} tokens (need at most {most}: the context holds "
                f"{self.limits.n_ctx}); shorten it, or load the model with a larger n_ctx"
            )

    def add(self, sequence: Sequence) -> list[Event]:
        """Start a checked sequence; its first event says how much of it is cached."""
        self.scheduler.add(sequence)
        return [_progress(sequence)]

    def step(self) -> list[Event]:
        """Let the sequences catch up by one step and return what happened.

        An empty list means that none had anything to do. Raises CancelledError when `cancel` was
        set, and what the executable raises; both leave every sequence as it was before.
        """
        work, starved = self.scheduler.plan()
        if starved:
            return [event for s in starved for event in self.finish(s, "length")]
        if not work:
            return []
        started_s = time.perf_counter()
        logits = self.executable.run(batch_of(work), cancel=self.cancel)
        in_prompt = [item.sequence.n_generated == 0 for item in work]
        events: list[Event] = []
        n_used = 0
        for item in work:
            n_rows = _n_wanted(item)
            events += self._advance(item, logits[n_used : n_used + n_rows])
            n_used += n_rows
        step_s = time.perf_counter() - started_s
        for item, was_prompt in zip(work, in_prompt, strict=True):
            if was_prompt:
                item.sequence.prompt_s += step_s
            else:
                item.sequence.generate_s += step_s
                item.sequence.n_generate_steps += 1
        return events

    def finish(
        self, sequence: Sequence, reason: FinishReason, error: BaseException | None = None
    ) -> list[Event]:
        """End a sequence from outside; one that has ended already stays as it ended."""
        if sequence.finish_reason is not None:
            return []
        sequence.error = error
        self.scheduler.finish(sequence, reason)
        return [Finished(sequence)]

    def _advance(self, item: Work, rows: npt.NDArray[np.float32]) -> Iterator[Event]:
        """Count `item` as computed and let its rows of logits have their effect."""
        sequence = item.sequence
        caught_up = item.catches_up
        if sequence.all_rows and not np.isfinite(rows).all():
            error = NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
            yield from self.finish(sequence, "error", error)
            return
        first = sequence.n_computed
        sequence.n_computed += item.n_tokens
        if first < sequence.n_prompt:
            yield _progress(sequence)
        if sequence.all_rows:
            yield Rows(sequence, first, rows.copy())
        if not caught_up:
            return
        if sequence.max_tokens == 0:
            yield from self.finish(sequence, "length")
        else:
            yield from self._sample(sequence, rows[0])

    def _sample(self, sequence: Sequence, row: npt.NDArray[np.float32]) -> Iterator[Event]:
        """Give a sequence that has caught up its next token, or its end."""
        try:
            token, logprob = _choose(sequence, row)
        except Exception as error:  # whatever it is, it ends this sequence and no other
            yield from self.finish(sequence, "error", error)
            return
        if token in sequence.stop_ids:
            sequence.stop_id = token
            yield from self.finish(sequence, "stop")
            return
        sequence.tokens.append(token)
        yield Token(sequence, token, logprob)
        full = len(sequence.tokens) >= self.limits.n_ctx
        if full or sequence.n_generated >= sequence.max_tokens:
            yield from self.finish(sequence, "length")


def _choose(sequence: Sequence, row: npt.NDArray[np.float32]) -> tuple[int, Sampled | None]:
    sampler, tokens, n_top = sequence.sampler, sequence.tokens, sequence.n_logprobs
    assert sampler is not None
    if n_top is None:
        return sampler.sample(row, tokens, len(tokens)), None
    sampled = sampler.sample_with_logprobs(row, tokens, len(tokens), n_top)
    return sampled.token, sampled


def _n_wanted(item: Work) -> int:
    if item.sequence.all_rows:
        return item.n_tokens
    return int(item.catches_up and item.sequence.max_tokens > 0)


def _progress(sequence: Sequence) -> Progress:
    n_done = min(sequence.n_computed, sequence.n_prompt)
    return Progress(sequence, n_done, sequence.n_prompt, sequence.n_cached)
