"""Tell how long a step of n tokens takes, from the steps there were; knows counts and seconds.

Only answers and guesses are counted: steps with prompts are `pace`'s.
"""

from collections import deque
from statistics import median
from typing import Final

N_KEPT: Final = 5  # latest measurements of each size; their median is not moved by a stray one
STEEP: Final = 0.25  # of the smallest step: what one more token is taken to add before it is known


class StepCost:
    """Medians of what was measured, and straight lines between them."""

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}

    def record(self, n_tokens: int, step_s: float) -> None:
        """Learn from a step."""
        latest = self._seconds.setdefault(n_tokens, deque(maxlen=N_KEPT))
        latest.append(step_s)
        self._medians[n_tokens] = median(latest)

    def n_measured(self, n_tokens: int) -> int:
        """Return how many steps of this size are remembered."""
        return len(self._seconds.get(n_tokens, ()))

    def seconds(self, n_tokens: int) -> float:
        """Return the seconds of a step; at least one of any size has been recorded."""
        if (known := self._medians.get(n_tokens)) is not None:
            return known
        below = max((n for n in self._medians if n < n_tokens), default=None)
        above = min((n for n in self._medians if n > n_tokens), default=None)
        if below is None:
            assert above is not None
            return self._medians[above]
        low_s = self._medians[below]
        if above is None:
            return low_s + STEEP * self._medians[min(self._medians)] * (n_tokens - below)
        share = (n_tokens - below) / (above - below)
        return low_s + share * (self._medians[above] - low_s)
