"""Keep account of guesses: what they cost and what they brought."""

from dataclasses import dataclass
from typing import Final

LOAN: Final = 0.85  # plain steps that a sequence may lose before it has gained any
SHARE: Final = 0.01  # of its time that it may lose besides
MOST_SAVED: Final = 8.0  # plain steps of its gains that a sequence may lose again


@dataclass(slots=True)
class Account:
    """The seconds that guesses gained.

    All seconds are those that steps usually take, so that a step which the machine held up is
    nobody's loss. `loan` is LOAN, or another one's.
    """

    loan: float = LOAN
    gained_s: float = 0.0
    spent_s: float = 0.0

    def may_lose(self, loss_s: float, plain_s: float) -> bool:
        """Whether a step may be longer by `loss_s`, if none of its guesses turns out right."""
        return loss_s <= self.left_s(plain_s)

    def left_s(self, plain_s: float) -> float:
        """Return the seconds that may be lost."""
        return self.gained_s + self.loan * plain_s + SHARE * self.spent_s

    def book(self, n_tokens: float, step_s: float, plain_s: float) -> None:
        """Count a step of `step_s` that gave `n_tokens`, where plain ones give one each."""
        gain_s = n_tokens * plain_s - step_s
        self.gained_s = min(self.gained_s + gain_s, MOST_SAVED * plain_s)
        self.spent_s += step_s
