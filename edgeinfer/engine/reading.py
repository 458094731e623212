"""Decide how much of a text a draft reads before it guesses, so that it never costs what it can not
bring. Knows seconds and counts of tokens.
"""

from typing import Final

from edgeinfer.engine.account import SHARE, Account
from edgeinfer.engine.draft import AT_ONCE, Draft
from edgeinfer.engine.sequence import Sequence

LOAN: Final = 3.0  # plain steps that a draft may lose before it has gained any
MOST_LENT: Final = 1.5  # plain steps that it may take to begin with a text
LEAST_READ: Final = 8  # tokens of a text that are worth to begin with
BESIDE: Final = 0.25  # of a plain step may go to reading while others wait
ALONE: Final = 1.0


class Reading:
    """The account of a draft, from which its reading is paid.

    A text is an investment: the part of it that is read costs no more than MOST_LENT, or SHARE of
    what the answer takes, or what the draft has gained before.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.account = Account(loan=LOAN)

    def step(self, sequence: Sequence, n_left: int, plain_s: float, *, is_alone: bool) -> None:
        """Read on in a text for a part of a step, if it may be; `n_left` tokens may still come."""
        draft = self._draft
        if not draft.is_reading(sequence) and not self._begin(sequence, n_left, plain_s):
            return
        most_s = plain_s * (ALONE if is_alone else BESIDE)
        n_tokens = max(AT_ONCE, int(most_s / draft.token_s))
        if self.account.may_lose(n_tokens * draft.token_s, plain_s):
            self.account.book(0, draft.read(sequence, n_tokens), plain_s)

    def _begin(self, sequence: Sequence, n_left: int, plain_s: float) -> bool:
        lent_s = min(MOST_LENT, SHARE * n_left) * plain_s
        most_s = lent_s + SHARE * sequence.prompt_s + max(0.0, self.account.gained_s)
        most = int(min(most_s, self.account.left_s(plain_s)) / self._draft.token_s)
        if most < min(LEAST_READ, len(sequence.tokens)):
            return False
        self._draft.begin(sequence, most)
        return True
