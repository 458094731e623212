"""Guess that a text repeats what stood before in it. Such guesses take no time to make."""

from collections.abc import Iterable, Mapping

from edgeinfer.engine.guessing import Guesses
from edgeinfer.engine.lookup import Lookup
from edgeinfer.engine.sequence import Sequence


class Repeats:
    """The lookup of each sequence, as a source of guesses."""

    def __init__(self) -> None:
        self.lookups: dict[Sequence, Lookup] = {}

    def follow(self, sequence: Sequence) -> None:
        """Take in the tokens that have come, and see which guesses were right."""
        if sequence not in self.lookups:
            self.lookups[sequence] = Lookup()
        self.lookups[sequence].read(sequence.tokens, n_given=sequence.n_prompt)

    def chances(self, sequence: Sequence, n: int) -> list[float]:
        """Return how likely each of `n` guesses and all before it are right, [] where none are."""
        lookup = self.lookups[sequence]
        return lookup.chances(n) if lookup.is_following else []

    def seconds(self, counts: Iterable[int]) -> float:
        """Return what guesses take to make: nothing."""
        return 0.0

    def guess(self, counts: Mapping[Sequence, int], least: float) -> dict[Sequence, Guesses]:
        """Return so many guesses at each of these sequences."""
        return {
            s: Guesses(self.lookups[s].guess(s.tokens, n), self.lookups[s].chances(n))
            for s, n in counts.items()
        }

    def spent(self) -> float:
        """Return what guesses have taken: nothing."""
        return 0.0

    def forget(self, sequence: Sequence) -> None:
        """Let go of a sequence that has come to its end."""
        self.lookups.pop(sequence, None)

    def close(self) -> None:
        """Free everything."""
        self.lookups.clear()
