"""Keep the account of one sequence's guesses: what they cost it and what they brought."""

from dataclasses import dataclass, field
from typing import Final

from edgeinfer.engine.lookup import Lookup

LOAN: Final = 0.85  # plain steps that a sequence may lose before it has gained any
SHARE: Final = 0.01  # of its time that it may lose besides
MOST_SAVED: Final = 8.0  # plain steps of its gains that a sequence may lose again


@dataclass(slots=True)
class Account:
    """Where guesses come from, and the seconds they gained.

    All seconds are those that steps usually take, so that a step which the machine held up is
    nobody's loss.
    """

    lookup: Lookup = field(default_factory=Lookup)
    gained_s: float = 0.0
    spent_s: float = 0.0

    def may_lose(self, loss_s: float, plain_s: float) -> bool:
        """Whether a step may be longer by `loss_s`, if none of its guesses turns out right."""
        return self.gained_s - loss_s >= -(LOAN * plain_s + SHARE * self.spent_s)

    def book(self, n_tokens: int, step_s: float, plain_s: float) -> None:
        """Count a step of `step_s` that gave `n_tokens`, where plain ones give one each."""
        gain_s = n_tokens * plain_s - step_s
        self.gained_s = min(self.gained_s + gain_s, MOST_SAVED * plain_s)
        self.spent_s += step_s
