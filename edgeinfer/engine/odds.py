"""Count how often guesses were right, by kinds, and forget what is long ago."""

from collections.abc import Iterable
from typing import Final

WEIGHT: Final = 4.0  # of what is expected before anything was seen, in guesses
MOST_SEEN: Final = 40.0  # guesses; then half of them are forgotten


class Odds:
    """The share of right guesses among those of each kind, which are 0, 1, 2 and so on."""

    __slots__ = ("_hits", "_trials")

    def __init__(self, expected: Iterable[float]) -> None:
        """Begin with the shares that are expected."""
        self._hits = [share * WEIGHT for share in expected]
        self._trials = [WEIGHT] * len(self._hits)

    def share(self, kind: int) -> float:
        """Return how likely a guess of this kind is right."""
        return self._hits[kind] / self._trials[kind]

    def count(self, kind: int, is_right: bool) -> None:
        """Learn what became of a guess."""
        self._hits[kind] += is_right
        self._trials[kind] += 1
        if self._trials[kind] > MOST_SEEN:
            self._hits[kind] /= 2
            self._trials[kind] /= 2
