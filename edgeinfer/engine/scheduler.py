"""Choose which sequences run next and who gives way for pages; knows counts, no arrays, no text.

There is no phase of prompts and no phase of answers. A sequence has tokens of which some are
computed; each step lets the others catch up, as many as fit the step. A new prompt catches up in
chunks, an answer one token at a time, a sequence that lost its pages from its start; a cached
prefix only changes how far behind it is. Guesses at what follows an answer's last token are
computed behind it.
"""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Final, Protocol

from edgeinfer.engine.guessing import Guesser
from edgeinfer.engine.holdings import Copy, Holdings
from edgeinfer.engine.pages import PAGE_LEN
from edgeinfer.engine.sequence import FinishReason, Sequence

MOST_PASSED_OVER: Final = 32  # steps in a row; after them a sequence goes first until it ends


class PromptPace(Protocol):
    """What the scheduler needs of `pace.Pace`."""

    def most_tokens(self, n_answers: int) -> int:
        """Return how many prompt tokens may run beside so many answers."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The next `n_tokens` tokens of `sequence`, and guesses at those after them.

    All are computed in this step; a guess counts only if it is what the sequence is given.
    """

    sequence: Sequence
    n_tokens: int
    guesses: Ids[int] = ()

    @property
    def n_rows(self) -> int:
        """How many rows of logits are wanted.

        Those a sequence asks for, else those that tokens to come are chosen from.
        """
        if self.sequence.rows_from is not None:
            return _n_rows(self.sequence, self.n_tokens)
        has_next = self.catches_up and self.sequence.max_tokens > 0
        return 1 + len(self.guesses) if has_next else 0

    @property
    def catches_up(self) -> bool:
        """Whether no token of the sequence is left to compute after this step."""
        return self.n_tokens == self.sequence.n_due


@dataclass(slots=True, eq=False)
class Plan:
    """A step as it fills, and what is left of it.

    copies: pages to be copied before the step, in order. chosen: how many tokens of whom.
    guesses: at what follows them.
    moved: who was let in, or found more of its tokens cached. starved: for whom there will never
    be a page.
    """

    n_left: int
    n_rows_left: int
    is_hidden: bool = False  # no logits are wanted of anybody, and rows do not count
    n_prompt_left: int = 0
    copies: list[Copy] = field(default_factory=list)
    chosen: dict[Sequence, int] = field(default_factory=dict)
    guesses: dict[Sequence, list[int]] = field(default_factory=dict)
    moved: list[Sequence] = field(default_factory=list)
    starved: list[Sequence] = field(default_factory=list)
    awaiting: set[Sequence] = field(default_factory=set)  # what another one computes for them
    under_way: dict[Sequence, set[bytes | None]] = field(default_factory=dict)  # keys of blocks

    @property
    def work(self) -> list[Work]:
        """The sequences of the step in their order."""
        return [Work(s, n, self.guesses.get(s, ())) for s, n in self.chosen.items()]


class Scheduler:
    """The sequences that are not at their end.

    Standing is by priority, then by arrival. Answers run in every step; prompts share the rest of
    it, the one that is least behind first. Who sees later ones pass for MOST_PASSED_OVER steps in
    a row has the highest standing from then on. When pages run out, a paused sequence, or else
    the one of lowest standing, loses its own and waits.
    """

    def __init__(
        self,
        holdings: Holdings,
        pace: PromptPace,
        *,
        n_batch: int,
        n_rows: int,
        guesser: Guesser | None = None,
    ) -> None:
        """Take `n_batch`, the most tokens in a step, and `n_rows`, the most rows of logits."""
        self.holdings = holdings
        self.running: list[Sequence] = []  # who may have pages
        self.waiting: list[Sequence] = []
        self._pace = pace
        self._guesser = guesser
        self._n_batch = n_batch
        self._n_rows = n_rows
        self._n_arrived = 0

    @property
    def has_work(self) -> bool:
        """Whether any sequence could take part in a step."""
        return any(not s.paused for s in (*self.running, *self.waiting))

    def add(self, sequence: Sequence) -> None:
        """Let `sequence` wait for its turn, which is the next step's if there are pages."""
        sequence.arrival = self._n_arrived
        self._n_arrived += 1
        self.waiting.append(sequence)

    def plan(self) -> Plan:
        """Return the next step."""
        plan = Plan(self._n_batch, self._n_rows)
        self._admit(plan)
        ready = [s for s in self.running if not s.paused]
        plan.is_hidden = all(s.hidden for s in ready)
        n_answers = sum(_is_answer(s) for s in ready)
        are_answers = n_answers == len(ready)
        plan.n_prompt_left = self._pace.most_tokens(n_answers)
        for sequence in _in_turn(ready):
            if sequence in self.running:  # and did not give way meanwhile
                n_answers -= _is_answer(sequence)
                self._choose(plan, sequence, n_reserved=n_answers)
        if are_answers and self._guesser is not None and plan.chosen:
            self._add_guesses(plan, self._guesser)
        self._count_passed_over(plan)
        return plan

    def advance(self, item: Work) -> None:
        """Count the tokens of `item` as computed, and none of its guesses."""
        self.holdings.advance(item.sequence, item.n_tokens)

    def settle(self, item: Work) -> None:
        """Take back what the step wrote for guesses of `item` that were wrong."""
        self.holdings.settle(item.sequence)

    def accept(self, sequence: Sequence) -> None:
        """Count the latest token of `sequence` as computed, which a guess was right about."""
        self.holdings.advance(sequence, 1)

    def finish(self, sequence: Sequence, reason: FinishReason, *, is_damaged: bool = False) -> None:
        """End `sequence`; what it computed is kept unless it is damaged."""
        sequence.finish_reason = reason
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        if is_damaged:
            self.holdings.discard(sequence)
        else:
            self.holdings.give_up(sequence)

    def _admit(self, plan: Plan) -> None:
        """Let in who waits, in the order of standing, as long as there are pages for them.

        Pages that running sequences still need for the tokens they have are not there to be had;
        those of sequences of a lower priority are.
        """
        for sequence in sorted(self.waiting, key=_standing):
            if sequence.paused:
                continue
            is_alone = all(s.paused for s in self.running)
            if not is_alone and not self._has_room(sequence):
                return
            self.waiting.remove(sequence)
            self.running.append(sequence)
            self._claim(plan, sequence)
            if sequence not in plan.moved:
                plan.moved.append(sequence)

    def _has_room(self, sequence: Sequence) -> bool:
        needed, room = self.holdings.n_missing(sequence), self.holdings.n_available
        n_beside = 0
        for other in self.running:
            if _beats(sequence, other):
                room += len(other.pages)
            else:
                needed += self.holdings.n_missing(other)
                n_beside += 1
        return needed <= room and self.holdings.has_room_beside(n_beside)

    def _claim(self, plan: Plan, sequence: Sequence) -> None:
        n_computed = sequence.n_computed
        plan.copies += self.holdings.claim(sequence)
        if sequence.n_computed > n_computed and sequence not in plan.moved:
            plan.moved.append(sequence)

    def _choose(self, plan: Plan, sequence: Sequence, *, n_reserved: int) -> None:
        """Put what fits of `sequence` into the step, with `n_reserved` answers still to come."""
        if not _is_answer(sequence) and sequence.n_computed % PAGE_LEN == 0:
            self._claim(plan, sequence)
            if not self.holdings.whole_sequences and self._is_under_way(plan, sequence):
                plan.awaiting.add(sequence)
                return
        n_tokens = min(sequence.n_due, plan.n_left)
        if not _is_answer(sequence):
            most = max(plan.n_left - n_reserved, int(not plan.chosen))
            n_tokens = min(n_tokens, plan.n_prompt_left, most)
        if sequence.rows_from is not None and not plan.is_hidden:
            n_before = max(0, sequence.rows_from - sequence.n_computed)
            n_tokens = min(n_tokens, n_before + plan.n_rows_left)
        if self.holdings.whole_sequences:
            if plan.chosen and sequence.n_due > n_tokens:
                return
            n_tokens = sequence.n_due  # one alone fits a step, whatever the pace
        if n_tokens <= 0 or plan.n_rows_left <= 0:
            return
        if self._make_room(plan, sequence, sequence.n_computed + n_tokens):
            self._take(plan, sequence, n_tokens)

    def _take(self, plan: Plan, sequence: Sequence, n_tokens: int) -> None:
        plan.chosen[sequence] = n_tokens
        plan.n_left -= n_tokens
        if not plan.is_hidden:
            plan.n_rows_left -= _n_rows(sequence, n_tokens)
        if _is_answer(sequence):
            return
        plan.n_prompt_left -= n_tokens
        first, end = sequence.n_computed // PAGE_LEN, sequence.n_computed + n_tokens
        blocks = range(first, -(-end // PAGE_LEN))
        plan.under_way[sequence] = {self._key(sequence, sequence.tokens, i) for i in blocks}

    def _take_back(self, plan: Plan, sequence: Sequence) -> None:
        n_tokens = plan.chosen.pop(sequence, 0)
        if n_tokens == 0:
            return
        plan.n_left += n_tokens
        if not plan.is_hidden:
            plan.n_rows_left += _n_rows(sequence, n_tokens)
        if not _is_answer(sequence):
            plan.n_prompt_left += n_tokens
            del plan.under_way[sequence]

    def _add_guesses(self, plan: Plan, guesser: Guesser) -> None:
        """Fill a step of answers with guesses, where pages are left for them."""
        found = guesser.guess(list(plan.chosen), min(plan.n_left, plan.n_rows_left))
        for sequence, guesses in found.items():
            if self.waiting:  # who needs the pages that guesses would take
                guesses = guesses[: len(sequence.pages) * PAGE_LEN - len(sequence.tokens)]
            guesses = guesses[: self.holdings.reserve_guesses(sequence, len(guesses))]
            if guesses:
                plan.guesses[sequence] = guesses

    def _is_under_way(self, plan: Plan, sequence: Sequence) -> bool:
        """Whether the step computes for another what `sequence` needs next."""
        if not plan.under_way:
            return False
        key = self._key(sequence, sequence.claimable, self.holdings.first_unknown(sequence))
        return key is not None and any(key in keys for keys in plan.under_way.values())

    def _key(self, sequence: Sequence, tokens: Ids[int], index: int) -> bytes | None:
        return self.holdings.prefixes.part_key(tokens, sequence.keys, index)

    def _make_room(self, plan: Plan, sequence: Sequence, n_tokens: int) -> bool:
        """Give `sequence` room for `n_tokens`; else it waits, or is starved if it is alone."""
        while not self.holdings.reserve(sequence, n_tokens):
            victim = self._victim(sequence)
            if victim is None and len(self.running) == 1:
                plan.starved.append(sequence)
                return False
            self._preempt(plan, victim or sequence)
            if victim is None:
                return False
        return True

    def _victim(self, sequence: Sequence) -> Sequence | None:
        """Return who gives way to `sequence`: a paused one, or else one of a lower standing."""
        others = [s for s in self.running if s.pages and s is not sequence]
        paused = [s for s in others if s.paused]
        lower = [s for s in others if _standing(s) > _standing(sequence)]
        return max(paused or lower, key=_standing, default=None)

    def _preempt(self, plan: Plan, sequence: Sequence) -> None:
        """Let `sequence` wait without pages; what is left of them by then it finds again."""
        self._take_back(plan, sequence)
        self.running.remove(sequence)
        self.waiting.append(sequence)
        self.holdings.give_up(sequence)

    def _count_passed_over(self, plan: Plan) -> None:
        last = max((s.arrival for s in plan.chosen), default=-1)
        for sequence in (*self.running, *self.waiting):
            if _is_overdue(sequence) or sequence.paused:
                continue
            is_awaiting = sequence in plan.awaiting and self._is_under_way(plan, sequence)
            if sequence in plan.chosen or is_awaiting:
                sequence.n_passed_over = 0
            elif sequence.arrival < last:
                sequence.n_passed_over += 1


def _n_rows(sequence: Sequence, n_tokens: int) -> int:
    """Return how many rows the next tokens of `sequence` may take at most."""
    if sequence.rows_from is None:
        return 1
    return max(0, sequence.n_computed + n_tokens - max(sequence.rows_from, sequence.n_computed))


def _in_turn(ready: list[Sequence]) -> list[Sequence]:
    """Order the running: who may not wait any longer, answers, prompts."""
    late = sorted((s for s in ready if _is_overdue(s)), key=_standing)
    rest = [s for s in ready if not _is_overdue(s)]
    answers = sorted((s for s in rest if _is_answer(s)), key=_standing)
    prompts = [s for s in rest if not _is_answer(s)]
    prompts.sort(key=lambda s: (-s.priority, s.n_due, s.arrival))
    return late + answers + prompts


def _standing(sequence: Sequence) -> tuple[bool, int, int]:
    return not _is_overdue(sequence), -sequence.priority, sequence.arrival


def _beats(sequence: Sequence, other: Sequence) -> bool:
    return not _is_overdue(other) and (other.paused or sequence.priority > other.priority)


def _is_overdue(sequence: Sequence) -> bool:
    return sequence.n_passed_over >= MOST_PASSED_OVER


def _is_answer(sequence: Sequence) -> bool:
    return sequence.n_due == 1
