"""Decide whose next tokens are guessed, and how many, so that answers come sooner.

A step that checks k guesses beside each answer's next token takes longer than one without, and
gives up to k tokens more. How likely guesses are right is seen by holding them against what comes,
which costs nothing; how much longer the step takes is measured. Texts do not depend on guesses, so
measured times may decide about them. Knows sequences and seconds, no pages and no arrays.
"""

from typing import Final, Protocol

from edgeinfer.engine.account import Account
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.step_cost import StepCost

SIZES: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # tokens in a step; of few sizes more is known each
MOST_GUESSES: Final = 15  # a sequence
LEAST_GAIN: Final = 1.08  # tokens a second with guesses, by those without: what is worth a try
MOST_SLOWER: Final = 1.03  # so much longer an answer's tokens may take for the guesses of others
N_PLAIN: Final = 2  # steps without guesses that are measured first
N_BETWEEN: Final = 32  # steps with guesses, after which one without is measured again


class Guesser(Protocol):
    """What the engine needs of a source of guesses."""

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        """Return guesses for the next step of these answers, at most `n_left` in all."""

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        """Learn from a step of answers: tokens that each got, and the guesses that were checked."""


class Speculation:
    """Guesses by lookup, as many as pay.

    Of all guesses the likeliest are taken, up to the number that gives the most tokens a second.
    An answer pays for its own guesses only: what they lost it, it may not lose much more of, and
    nobody else's tokens may come later for them by more than MOST_SLOWER.
    """

    def __init__(self, n_ctx: int) -> None:
        self._n_ctx = n_ctx
        self._cost = StepCost()
        self._accounts: dict[Sequence, Account] = {}  # of the answers in the step
        self._n_since_plain = 0

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        """Return guesses for the next step of these answers, at most `n_left` in all."""
        self._accounts = {s: _account_of(s) for s in sequences}
        if self._cost.n_measured(len(sequences)) < N_PLAIN or self._n_since_plain >= N_BETWEEN:
            return {}
        ranked = self._ranked(n_left)
        counts = self._best(ranked)
        return {
            sequence: self._accounts[sequence].lookup.guess(sequence.tokens, n)
            for sequence, n in counts.items()
        }

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        """Learn from a step of answers: tokens that each got, and the guesses that were checked."""
        n = len(gained)
        self._cost.record(n + n_guesses, step_s)
        self._n_since_plain = self._n_since_plain + 1 if n_guesses else 0
        plain_s, usual_s = self._cost.seconds(n), self._cost.seconds(n + n_guesses)
        for sequence, n_tokens in gained.items():
            if sequence.account is not None:
                sequence.account.book(n_tokens, usual_s, plain_s)

    def _ranked(self, n_left: int) -> list[tuple[float, Sequence]]:
        """Return the chance of every guess that could be made, best first.

        A guess is never likelier than the one before it, so any beginning of the list can be made.
        """
        most = min(n_left, SIZES[-1] - len(self._accounts))
        ranked: list[tuple[float, Sequence]] = []
        for sequence, account in self._accounts.items():
            n = min(self._room(sequence), most, MOST_GUESSES)
            if n > 0 and account.lookup.is_following:
                ranked += ((chance, sequence) for chance in account.lookup.chances(n))
        ranked.sort(key=lambda pair: -pair[0])
        return ranked[: max(0, most)]

    def _room(self, sequence: Sequence) -> int:
        """Return after how many guesses there is still room for one more token."""
        if sequence.n_generated == 0:  # its step counts as one of the prompt's
            return 0
        n_left = sequence.max_tokens - sequence.n_generated
        return min(n_left, self._n_ctx - len(sequence.tokens)) - 1

    def _best(self, ranked: list[tuple[float, Sequence]]) -> dict[Sequence, int]:
        """Return how many guesses each sequence gets for the most tokens a second."""
        n = len(self._accounts)
        plain_s = self._cost.seconds(n)
        expected = dict.fromkeys(self._accounts, 1.0)
        counts: dict[Sequence, int] = {}
        best: dict[Sequence, int] = {}
        best_rate = LEAST_GAIN * n / plain_s
        for n_tokens, (chance, sequence) in enumerate(ranked, n + 1):
            expected[sequence] += chance
            counts[sequence] = counts.get(sequence, 0) + 1
            if n_tokens not in SIZES:
                continue
            step_s = self._cost.seconds(n_tokens)
            rate = sum(expected.values()) / step_s
            if rate > best_rate and self._is_fair(expected, counts, step_s, plain_s):
                best, best_rate = dict(counts), rate
        return best

    def _is_fair(
        self,
        expected: dict[Sequence, float],
        counts: dict[Sequence, int],
        step_s: float,
        plain_s: float,
    ) -> bool:
        return all(
            step_s <= MOST_SLOWER * plain_s * n_tokens for n_tokens in expected.values()
        ) and all(self._accounts[s].may_lose(step_s - plain_s, plain_s) for s in counts)


def _account_of(sequence: Sequence) -> Account:
    """Return the account of an answer, up to its latest token."""
    if sequence.account is None:
        sequence.account = Account()
    sequence.account.lookup.read(sequence.tokens, n_given=sequence.n_prompt)
    return sequence.account
