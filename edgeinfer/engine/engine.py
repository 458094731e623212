"""Step sequences of token ids through an executable: prompts in chunks, answers token by token.

Ids go in, events come out. Knows no text and no threads: whoever steps it is alone with it.
"""

import time
from collections.abc import Iterator
from collections.abc import Sequence as Ids
from functools import partial

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.batch import batch_of
from edgeinfer.engine.budget import Budget
from edgeinfer.engine.events import Event, Finished, Progress, Rows, Token
from edgeinfer.engine.guessing import Guesser
from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.pace import Pace
from edgeinfer.engine.pages import PAGE_LEN, PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.scheduler import Plan, Scheduler, Work
from edgeinfer.engine.sequence import FinishReason, Sequence
from edgeinfer.engine.state import Snapshots, spacing_of
from edgeinfer.engine.storing import Storage, Stored
from edgeinfer.errors import (
    CancelledError,
    ContextOverflowError,
    InvalidParameterError,
    NonFiniteError,
    ResourceError,
)
from edgeinfer.kernels.backend import STEP_LEN, Cancel, Executable, Limits

ROWS_BYTES = 64 << 20  # most logits of one step; one row is 1 MiB where the vocabulary is 262,144


class Engine:
    """The executable, its scheduler and the flag that stops a step."""

    def __init__(
        self,
        executable: Executable,
        limits: Limits,
        *,
        budget: Budget | None = None,
        fingerprint: bytes = b"",
        window: int = 0,
        whole_sequences: bool = False,
        guesser: Guesser | None = None,
        cancel: Cancel | None = None,
        stored: Ids[Stored] = (),
    ) -> None:
        """Take what the pages may take (everything, if not given), a fingerprint of all that
        decides the keys and values of tokens, the longest window, 0 where a layer has none, whether
        a step takes all tokens of a sequence or none, who guesses at what answers go on with, if
        anybody does, the flag that stops a step, if the guesser has it, too, and prefixes that are
        kept elsewhere.
        """
        self.executable = executable
        self.limits = limits
        self.cancel = cancel or Cancel()
        pool = PagePool(limits.n_pages, has_room=budget.has_room if budget else None)
        snapshots = _snapshots(executable, limits, budget)
        holdings = Holdings(
            pool,
            PrefixCache(pool, fingerprint, snapshots),
            n_kept=budget.n_kept if budget else limits.n_pages,
            window=window,
            snapshots=snapshots,
            whole_sequences=whole_sequences,
        )
        self.storage = Storage(holdings, executable, stored)
        # a longer step is for sequences that are longer, and reads the weights no faster
        n_batch = min(limits.n_batch, STEP_LEN) if whole_sequences else limits.n_batch
        self.pace = Pace(n_batch)
        self._guesser = guesser
        self.scheduler = Scheduler(
            holdings,
            self.pace,
            n_batch=n_batch,
            n_rows=max(1, ROWS_BYTES // (4 * executable.n_out)),
            guesser=guesser,
        )

    def check(self, tokens: Ids[int], *, max_tokens: int) -> None:
        """Raise unless a sequence of these tokens can run; touches nothing, so any thread may ask.

        Raises InvalidParameterError (no token, an id outside the vocabulary, max_tokens below 0)
        ContextOverflowError (no room for the tokens and the first of the answer), ResourceError
        (there will never be so many pages).
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
        n_pages = self.limits.n_pages
        if pages_for(len(tokens)) > n_pages:
            raise ResourceError(
                f"prompt: found {len(tokens)} tokens (need at most {n_pages * PAGE_LEN}, in "
                f"{n_pages} pages); shorten it, or load the model with a larger n_ctx"
            )

    def add(self, sequence: Sequence) -> None:
        """Let a checked sequence take part from the next step on."""
        self.storage.provide(sequence.claimable)
        self.scheduler.add(sequence)

    def step(self) -> Iterator[Event]:
        """Let the sequences catch up by one step, and yield what happens.

        Nothing happens where none has anything to do. Raises CancelledError when `cancel` was set,
        with every sequence as it was before. What else the executable raises ends the sequences
        that raise it when they run alone.
        """
        started_s = time.perf_counter()
        plan = self.scheduler.plan()
        plan_s = time.perf_counter() - started_s  # guesses may take a model to make
        for source, target in plan.copies:
            self.executable.copy_page(source, target)
        yield from (_progress(s) for s in plan.moved if s.n_told < _n_ready(s))
        for sequence in plan.starved:
            yield from self._starve(sequence)
        yield from self._run(plan, plan_s)

    def finish(
        self, sequence: Sequence, reason: FinishReason, error: BaseException | None = None
    ) -> list[Event]:
        """End a sequence from outside; one that has ended already stays as it ended."""
        if sequence.finish_reason is not None:
            return []
        sequence.error = error
        is_damaged = isinstance(error, NonFiniteError)
        self.scheduler.finish(sequence, reason, is_damaged=is_damaged)
        if self._guesser is not None:
            self._guesser.forget(sequence)
        return [Finished(sequence)]

    def close(self) -> None:
        """Free everything; calling it again does nothing."""
        self.storage.stored.clear()
        self.executable.close()
        if self._guesser is not None:
            self._guesser.close()

    def _run(self, plan: Plan, plan_s: float) -> list[Event]:
        work = plan.work
        if not work:
            return []
        try:
            return self._run_together(work, plan_s)
        except CancelledError:
            raise
        except Exception as error:
            if len(work) == 1:
                return self.finish(work[0].sequence, "error", error)
        return [event for item in work for event in self._run_alone(item)]

    def _run_alone(self, item: Work) -> list[Event]:
        """Run a part of a step that failed as a whole, to find out whose fault it was."""
        try:
            return self._run_together([item], 0.0)
        except CancelledError:  # it takes part in the next step
            return []
        except Exception as error:
            return self.finish(item.sequence, "error", error)

    def _run_together(self, work: list[Work], plan_s: float) -> list[Event]:
        started_s = time.perf_counter()
        logits = self.executable.run(batch_of(work), cancel=self.cancel)
        hidden = self.executable.hidden()
        run_s = time.perf_counter() - started_s
        n_prompt_tokens = sum(i.n_tokens for i in work if i.sequence.n_due > 1)
        n_answers = sum(i.sequence.n_due == 1 for i in work)
        n_chosen = [item.sequence.n_chosen for item in work]
        events: list[Event] = []
        n_used = 0
        for item in work:
            n_rows = item.n_rows
            rows = hidden if item.sequence.hidden else logits
            events += self._advance(item, rows[n_used : n_used + n_rows])
            self.scheduler.settle(item)
            n_used += n_rows
        self._learn(work, n_chosen, n_answers, n_prompt_tokens, run_s)
        step_s = plan_s + time.perf_counter() - started_s
        for item, n_before in zip(work, n_chosen, strict=True):
            if n_before == 0:
                item.sequence.prompt_s += step_s
            else:
                item.sequence.generate_s += step_s
        return events

    def _learn(
        self,
        work: list[Work],
        n_chosen: list[int],
        n_answers: int,
        n_prompt_tokens: int,
        run_s: float,
    ) -> None:
        """Tell who plans steps how long one took, and what it brought to those who had `n_chosen`.

        A step with guesses says nothing of the pace without, one with prompts nothing of guesses.
        """
        n_guesses = sum(len(item.guesses) for item in work)
        if n_guesses == 0:
            self.pace.record(n_answers, n_prompt_tokens, run_s)
        if self._guesser is not None and n_answers == len(work):
            gained = {
                item.sequence: item.sequence.n_chosen - n_before
                for item, n_before in zip(work, n_chosen, strict=True)
            }
            self._guesser.record(gained, n_guesses, run_s)

    def _starve(self, sequence: Sequence) -> list[Event]:
        """End a sequence for which no page is left though it is alone."""
        if sequence.n_generated > 0:
            return self.finish(sequence, "length")
        n_pages = self.scheduler.holdings.pool.n_touched
        error = ResourceError(
            f"prompt: found {len(sequence.tokens)} tokens (need at most {n_pages * PAGE_LEN}, "
            "which the memory has room for); shorten it, free memory, or load with kv_type='q8_0'"
        )
        return self.finish(sequence, "error", error)

    def _advance(self, item: Work, rows: npt.NDArray[np.float32]) -> Iterator[Event]:
        """Count `item` as computed and let its rows of logits have their effect."""
        sequence = item.sequence
        caught_up = item.catches_up
        if sequence.rows_from is not None and not np.isfinite(rows).all():
            what = "hidden rows" if sequence.hidden else "logits"
            error = NonFiniteError(f"{what}: found NaN or infinity; the weights may be damaged")
            yield from self.finish(sequence, "error", error)
            return
        first, n_reached = sequence.n_computed, sequence.n_reached
        self.scheduler.advance(item)
        if sequence.n_told < _n_ready(sequence):
            yield _progress(sequence)
        if sequence.rows_from is not None:
            first = max(first, sequence.rows_from)
            n_told = max(first, n_reached)
            if sequence.n_reached > n_told:
                yield Rows(sequence, n_told, rows[n_told - first :].copy())
        if not caught_up:
            return
        if sequence.max_tokens == 0:
            yield from self.finish(sequence, "length")
            return
        sequence.n_guessed += len(item.guesses)
        yield from self._sample(sequence, rows[0])
        for guess, row in zip(item.guesses, rows[1:], strict=True):
            if sequence.finish_reason is not None or sequence.tokens[-1] != guess:
                return
            sequence.n_accepted += 1
            self.scheduler.accept(sequence)
            yield from self._sample(sequence, row)

    def _sample(self, sequence: Sequence, row: npt.NDArray[np.float32]) -> Iterator[Event]:
        """Give a sequence that has caught up its next token, or its end."""
        try:
            token, logprob = _choose(sequence, row)
        except BaseException as error:  # whatever it is, it ends this sequence and no other
            yield from self.finish(sequence, "error", error)
            return
        sequence.n_chosen += 1
        if token in sequence.stop_ids:
            sequence.stop_id = token
            yield from self.finish(sequence, "stop")
            return
        sequence.tokens.append(token)
        yield Token(sequence, token, logprob)
        if sequence.constraint is not None and sequence.constraint.is_done:
            yield from self.finish(sequence, "stop")
            return
        full = len(sequence.tokens) >= self.limits.n_ctx
        if full or sequence.n_generated >= sequence.max_tokens:
            yield from self.finish(sequence, "length")


def _snapshots(executable: Executable, limits: Limits, budget: Budget | None) -> Snapshots | None:
    """Return the snapshots of a model with recurrent state."""
    n_bytes = executable.snapshot_bytes
    if n_bytes == 0:
        return None
    has_room = partial(budget.has_room, unit_bytes=n_bytes) if budget else None
    spacing = spacing_of(n_bytes, executable.page_bytes)
    return Snapshots(PagePool(limits.n_snapshots, has_room=has_room), spacing)


def _choose(sequence: Sequence, row: npt.NDArray[np.float32]) -> tuple[int, Sampled | None]:
    sampler, tokens, n_top = sequence.sampler, sequence.tokens, sequence.n_logprobs
    assert sampler is not None
    if n_top is None:
        return sampler.sample(row, tokens, len(tokens)), None
    sampled = sampler.sample_with_logprobs(row, tokens, len(tokens), n_top)
    return sampled.token, sampled


def _n_ready(sequence: Sequence) -> int:
    return min(sequence.n_reached, sequence.n_prompt)


def _progress(sequence: Sequence) -> Progress:
    sequence.n_told = _n_ready(sequence)
    return Progress(sequence, sequence.n_told, sequence.n_prompt, sequence.n_cached)
