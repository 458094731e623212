"""Say what the engine asks of whoever guesses ahead, and what that one asks of his sources.

Token ids and chances only: a guess is checked by the model it is about, so no answer depends on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edgeinfer.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Guesses:
    """Tokens that may come next, and how likely each of them and all before it are right."""

    tokens: list[int]
    chances: list[float]


class Guesser(Protocol):
    """What the engine needs: guesses for each step of answers."""

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        """Return guesses for the next step of these answers, at most `n_left` in all."""

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        """Learn from a step of answers: tokens that each got, and the guesses that were checked."""

    def forget(self, sequence: Sequence) -> None:
        """Let go of a sequence that has come to its end."""

    def close(self) -> None:
        """Free everything; calling it again does nothing."""


class Source(Protocol):
    """Where guesses come from: what stood before, or a smaller model."""

    def follow(self, sequence: Sequence) -> None:
        """Take in the tokens that have come, and see which guesses were right."""

    def chances(self, sequence: Sequence, n: int) -> list[float]:
        """Return what the chances of `n` guesses are expected to be, [] where none can be made."""

    def seconds(self, counts: Iterable[int]) -> float:
        """Return how long it takes to make so many guesses at each of several sequences."""

    def guess(self, counts: Mapping[Sequence, int], least: float) -> dict[Sequence, Guesses]:
        """Return up to so many guesses; where they take time, none that has less than a chance."""

    def spent(self) -> float:
        """Return the seconds that guesses have taken since this was asked last."""

    def forget(self, sequence: Sequence) -> None:
        """Let go of a sequence that has come to its end."""

    def close(self) -> None:
        """Free everything; calling it again does nothing."""
