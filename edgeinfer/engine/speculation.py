"""Decide whose next tokens are guessed, and how many, so that answers come sooner.

A step that checks k guesses beside each answer's next token takes longer than one without, and
gives up to k tokens more. How likely guesses are right is seen by holding them against what comes;
how much longer the step takes, and how long guesses take to make, is measured. Texts do not depend
on guesses, so measured times may decide about them. Knows sequences and seconds, no pages and no
arrays.
"""

from collections.abc import Callable, Mapping
from typing import Final

from edgeinfer.engine.account import Account
from edgeinfer.engine.draft import Draft
from edgeinfer.engine.guessing import Guesses, Source
from edgeinfer.engine.reading import Reading
from edgeinfer.engine.repeats import Repeats
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.step_cost import StepCost

SIZES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # tokens in a step; of few sizes more is known each
MOST_GUESSES: Final = 15  # a sequence
LEAST_GAIN: Final = 1.08  # tokens a second with guesses, by those without: what is worth a try
MOST_SLOWER: Final = 1.03  # so much longer an answer's tokens may take for the guesses of others
MOST_LONGER: Final = 2  # times the guesses that were expected to pay are drafted where all is sure
N_PLAIN: Final = 2  # steps without guesses that are measured first
N_BETWEEN: Final = 32  # steps with guesses, after which one without is measured again

Counts = dict[Sequence, int]  # of guesses
Chances = Mapping[Sequence, list[float]]  # of each guess and all before it


class Speculation:
    """Guesses from what stood before and from a draft, as many as pay.

    Of all guesses the likeliest are taken, up to the number that gives the most tokens a second.
    An answer pays for its own guesses only: what they lost it, it may not lose much more of, and
    nobody else's tokens may come later for them by more than MOST_SLOWER.

    A sequence has the guesses of a step from one source: what stood before takes no time, so a
    draft has to be likelier right.
    """

    def __init__(self, n_ctx: int, draft: Draft | None = None) -> None:
        self._n_ctx = n_ctx
        self._cost = StepCost()
        self._repeats = Repeats()
        self._draft = draft
        self._reading = Reading(draft) if draft is not None else None
        self._sources: list[Source] = [self._repeats, *([draft] if draft is not None else [])]
        self._accounts: dict[Sequence, Account] = {}
        self._step: list[Sequence] = []  # its answers
        self._drafted: Counts = {}
        self._made_s = 0.0  # seconds that guesses took to make since a step was recorded
        self._n_since_plain = 0

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        """Return guesses for the next step of these answers, at most `n_left` in all."""
        self._step, self._drafted = sequences, {}
        for sequence in sequences:
            self._accounts.setdefault(sequence, Account())
            for source in self._sources:
                source.follow(sequence)
        if self._cost.n_measured(len(sequences)) < N_PLAIN or self._n_since_plain >= N_BETWEEN:
            return {}
        most = max(0, min(n_left, SIZES[-1] - len(sequences)))
        rooms = {s: n for s in sequences if (n := min(self._room(s), most, MOST_GUESSES)) > 0}
        self._read(rooms, most)
        source_of = {s: self._likeliest(s, n) for s, n in rooms.items()}
        chances = {s: source.chances(s, rooms[s]) for s, source in source_of.items()}
        counts = self._best(chances, most, lambda counts: self._making_s(source_of, counts))
        made = self._make(source_of, chances, counts, rooms)
        taken_s = sum(source.spent() for source in self._sources)
        self._made_s += taken_s
        if any(source_of[s] is self._draft for s in made):
            counts = self._best({s: g.chances for s, g in made.items()}, most, taken_s=taken_s)
            self._drafted = {s: n for s, n in counts.items() if source_of[s] is self._draft}
        return {s: made[s].tokens[:n] for s, n in counts.items() if s in made}

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        """Learn from a step of answers: tokens that each got, and the guesses that were checked."""
        n = len(gained)
        self._cost.record(n + n_guesses, step_s)
        self._n_since_plain = self._n_since_plain + 1 if n_guesses else 0
        made_s, self._made_s = self._made_s, 0.0
        plain_s, usual_s = self._cost.seconds(n), self._cost.seconds(n + n_guesses)
        for sequence, n_tokens in gained.items():
            if (account := self._accounts.get(sequence)) is not None:
                account.book(n_tokens, usual_s + made_s, plain_s)
        if self._reading is not None:
            n_others = n_guesses - min(n_guesses, sum(self._drafted.values()))
            longer_s = usual_s - self._cost.seconds(n + n_others)
            n_more = sum(gained.get(s, 1) - 1 for s in self._drafted)
            self._reading.account.book(1 + n_more / n, plain_s + longer_s + made_s, plain_s)

    def forget(self, sequence: Sequence) -> None:
        """Let go of a sequence that has come to its end."""
        self._accounts.pop(sequence, None)
        for source in self._sources:
            source.forget(sequence)

    def close(self) -> None:
        """Free everything; calling it again does nothing."""
        for source in self._sources:
            source.close()

    def _room(self, sequence: Sequence) -> int:
        """Return after how many guesses there is still room for one more token."""
        if sequence.n_generated == 0:  # its step counts as one of the prompt's
            return 0
        return self._n_to_come(sequence) - 1

    def _n_to_come(self, sequence: Sequence) -> int:
        n_left = sequence.max_tokens - sequence.n_generated
        return min(n_left, self._n_ctx - len(sequence.tokens))

    def _read(self, rooms: Counts, most: int) -> None:
        """Let the draft read on in a text that it knows too little of, if guesses would pay."""
        draft = self._draft
        if draft is None or self._reading is None:
            return
        plain_s = self._cost.seconds(len(self._step))
        draft.suppose(plain_s)
        hopes = {s: draft.hopes(s, n) for s, n in rooms.items()}
        paying = self._best(hopes, most, lambda counts: draft.seconds(counts.values()))
        for sequence in paying:
            known = self._repeats.chances(sequence, 1)
            if draft.is_ready(sequence) or (known and known[0] >= hopes[sequence][0]):
                continue
            n_left, is_alone = self._n_to_come(sequence), len(self._step) == 1
            self._reading.step(sequence, n_left, plain_s, is_alone=is_alone)
            return

    def _likeliest(self, sequence: Sequence, n: int) -> Source:
        """Return the source whose next guess is likeliest right, the first of several."""
        return max(self._sources, key=lambda source: (source.chances(sequence, n) or [0.0])[0])

    def _making_s(self, source_of: Mapping[Sequence, Source], counts: Counts) -> float:
        """Return how long guesses take to make."""
        return sum(
            source.seconds(n for s, n in counts.items() if source_of[s] is source)
            for source in self._sources
        )

    def _make(
        self,
        source_of: Mapping[Sequence, Source],
        chances: Chances,
        counts: Counts,
        rooms: Counts,
    ) -> dict[Sequence, Guesses]:
        """Return guesses at these sequences; where a draft is sure of them, more than counted."""
        made: dict[Sequence, Guesses] = {}
        if not counts:
            return made
        n_tokens = len(self._step) + sum(sum(chances[s][:n]) for s, n in counts.items())
        step_s = self._cost.seconds(len(self._step) + sum(counts.values()))
        rate = n_tokens / (step_s + self._making_s(source_of, counts))
        for source in self._sources:
            wanted = {s: n for s, n in counts.items() if source_of[s] is source}
            if source is self._draft:
                wanted = {s: min(MOST_LONGER * n, rooms[s]) for s, n in wanted.items()}
            if wanted:
                made |= source.guess(wanted, rate * self._one_more_s(source, counts))
        return made

    def _one_more_s(self, source: Source, counts: Counts) -> float:
        """Return how much longer one more guess makes a step, with what it takes to make."""
        n, n_guesses = len(self._step), sum(counts.values())
        longer_s = self._cost.seconds(n + n_guesses) - self._cost.seconds(n)
        return source.seconds([1]) + max(0.0, longer_s) / n_guesses

    def _best(
        self,
        chances: Chances,
        most: int,
        making_s: Callable[[Counts], float] | None = None,
        *,
        taken_s: float = 0.0,
    ) -> Counts:
        """Return how many guesses each sequence gets for the most tokens a second.

        A guess is never likelier than the one before it, so any beginning of the likeliest can be
        made. `making_s`: what that takes; without it they are there, and took `taken_s` whatever is
        made of them.
        """
        ranked = [(chance, s) for s, listed in chances.items() for chance in listed]
        ranked.sort(key=lambda pair: -pair[0])
        n = len(self._step)
        plain_s = self._cost.seconds(n)
        expected = dict.fromkeys(self._step, 1.0)
        counts: Counts = {}
        best: Counts = {}
        best_rate = LEAST_GAIN * n / (plain_s + taken_s)
        for n_tokens, (chance, sequence) in enumerate(ranked[:most], n + 1):
            expected[sequence] += chance
            counts[sequence] = counts.get(sequence, 0) + 1
            if n_tokens not in SIZES:
                continue
            step_s = self._cost.seconds(n_tokens) + (making_s(counts) if making_s else 0.0)
            rate = sum(expected.values()) / (step_s + taken_s)
            if rate > best_rate and self._is_fair(expected, counts, step_s, plain_s):
                best, best_rate = dict(counts), rate
        return best

    def _is_fair(
        self, expected: dict[Sequence, float], counts: Counts, step_s: float, plain_s: float
    ) -> bool:
        return all(
            step_s <= MOST_SLOWER * plain_s * n_tokens for n_tokens in expected.values()
        ) and all(self._accounts[s].may_lose(step_s - plain_s, plain_s) for s in counts)
