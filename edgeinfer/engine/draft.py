"""Guess with a smaller model of the same vocabulary, in pages and steps of its own.

Token ids go in, the ids the draft finds likeliest come out, with how likely such guesses have been
right. No answer depends on them, so what goes wrong here ends the guessing and nothing else.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.batch import Stretch, ragged
from edgeinfer.engine.guessing import Guesses
from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.odds import Odds
from edgeinfer.engine.scoring import score
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.step_cost import StepCost
from edgeinfer.errors import CancelledError
from edgeinfer.kernels.backend import Cancel, Executable, Limits

AT_ONCE: Final = 8  # tokens that are computed together with the first guess; a few cost as one
BATCHED: Final = 2.0  # so much less a token of a long stretch takes than one alone, until measured
ROOM: Final = 32  # positions that are left free behind a sequence
MEAN: Final = 0.6  # of guesses are right, until it is known
# By the draft's own probability of its guess, from each of LEAST on: how likely it is right.
LEAST: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
EXPECTED: Final = (0.1, 0.3, 0.5, 0.65, 0.8, 0.95)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Shadow:
    """A sequence as the draft has it: what it has computed, and its guesses at what follows.

        tokens    | those of the sequence, from `first` on .... | guesses ....... |
        computed  | n_computed, which others may start from | n_ahead |

    Guesses are computed behind the tokens that came, so a wrong one leaves nothing behind.
    """

    sequence: Sequence  # in pages of the draft's
    first: int  # token of the one it follows
    odds: Odds
    guesses: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)  # of odds
    n_ahead: int = 0  # guesses that are computed


class Draft:
    """A small model, its pages, and what is known of how good and how dear its guesses are."""

    def __init__(
        self,
        executable: Executable,
        limits: Limits,
        holdings: Holdings,
        *,
        n_vocab: int,
        cost: float,
        cancel: Cancel,
    ) -> None:
        """Take a compiled model whose first `n_vocab` ids are those it guesses for.

        `cost`: seconds of a token of it by one of the model's, as far as it is known beforehand.
        `cancel`: the flag that stops the model's step, and the draft's with it.
        """
        self._executable = executable
        self._limits = limits
        self._holdings = holdings
        self._n_vocab = n_vocab
        self._relative = cost
        self._cancel = cancel
        self._cost = StepCost()
        self._spent_s = 0.0
        self._shadows: dict[Sequence, _Shadow] = {}
        self._mean = Odds([MEAN])
        self._odds = Odds(EXPECTED)
        self._is_off = limits.n_ctx < 4 * ROOM  # no text would be followed for long
        self.token_s = 0.0  # of one token of many that are read at once

    def suppose(self, plain_s: float) -> None:
        """Learn how long a step of the model takes, for as long as nothing better is known."""
        if self._cost.n_measured(1) == 0:
            self._cost.record(1, self._relative * plain_s)
            self.token_s = self._relative * plain_s / BATCHED

    def follow(self, sequence: Sequence) -> None:
        """Take in the tokens that have come, and see which guesses were right."""
        shadow = self._shadows.get(sequence)
        if shadow is None:
            return
        for token in sequence.tokens[shadow.first + len(shadow.sequence.tokens) :]:
            self._take(shadow, token)
        if len(shadow.sequence.tokens) + ROOM > self._limits.n_ctx:
            self.forget(sequence)

    def is_reading(self, sequence: Sequence) -> bool:
        """Whether the draft has begun with the text of `sequence`."""
        return sequence in self._shadows

    def is_ready(self, sequence: Sequence) -> bool:
        """Whether the draft has read enough of the text to guess."""
        shadow = self._shadows.get(sequence)
        return shadow is not None and shadow.sequence.n_due <= AT_ONCE and not self._is_off

    def hopes(self, sequence: Sequence, n: int) -> list[float]:
        """Return the chances of `n` guesses by how good its guesses have been."""
        if self._is_off:
            return []
        shadow = self._shadows.get(sequence)
        mean = shadow.odds.share(0) if shadow else self._prior()
        return [mean**i for i in range(1, n + 1)]

    def chances(self, sequence: Sequence, n: int) -> list[float]:
        """Return how likely each of `n` guesses and all before it are right, [] if none are."""
        return self.hopes(sequence, n) if self.is_ready(sequence) else []

    def seconds(self, counts: Iterable[int]) -> float:
        """Return how long it takes to make so many guesses at each of several sequences."""
        counts = [n for n in counts if n > 0]
        steps = (sum(n >= i for n in counts) for i in range(1, max(counts, default=0) + 1))
        return sum(map(self._cost.seconds, steps))

    def guess(self, counts: Mapping[Sequence, int], least: float) -> dict[Sequence, Guesses]:
        """Return up to so many guesses at each sequence that is ready.

        One after which the next is expected to be less likely than `least` is the last.
        """
        shadows = {s: self._shadows[s] for s in counts if self.is_ready(s)}
        active = list(shadows)
        while not self._is_off:
            active = [s for s in active if self._goes_on(shadows[s], counts[s], least)]
            if not active:
                break
            if not self._guess_once([shadows[s] for s in active]):
                break
        made = {s: Guesses(h.guesses[: counts[s]], self._chances(h)) for s, h in shadows.items()}
        return {s: guesses for s, guesses in made.items() if guesses.tokens}

    def spent(self) -> float:
        """Return the seconds that guesses have taken since this was asked last."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def begin(self, sequence: Sequence, most: int) -> None:
        """Begin with a text: with all of it if at most `most` tokens are to be computed, or else
        with so many from its end.
        """
        n_known = len(sequence.tokens)
        if n_known + 2 * ROOM <= self._limits.n_ctx:
            shadow = self._open(sequence, 0)
            if shadow.sequence.n_due <= most:
                return
            self.forget(sequence)
        self._open(sequence, n_known - max(1, min(most, n_known, self._limits.n_ctx // 2)))

    def read(self, sequence: Sequence, most: int) -> float:
        """Compute up to `most` tokens of what was begun with; return the seconds it took."""
        own = self._shadows[sequence].sequence
        n = min(most, own.n_due - 1, self._limits.n_batch)
        if n <= 0 or not self._holdings.extend(own, own.n_computed + n):
            return 0.0
        first = own.n_computed
        stretch = Stretch(own.tokens[first : first + n], first, own.pages, 0)
        started_s = time.perf_counter()
        if self._step([stretch]) is None:
            return 0.0
        read_s = time.perf_counter() - started_s
        self._holdings.advance(own, n)
        if n >= AT_ONCE:
            self.token_s = (self.token_s + read_s / n) / 2
        return read_s

    def forget(self, sequence: Sequence) -> None:
        """Let go of a sequence; what was read of it stays known as long as there is room."""
        shadow = self._shadows.pop(sequence, None)
        if shadow is not None:
            self._holdings.give_up(shadow.sequence)

    def close(self) -> None:
        """Free the model; calling it again does nothing."""
        self._is_off = True
        self._executable.close()

    def _open(self, sequence: Sequence, first: int) -> _Shadow:
        own = Sequence(sequence.tokens[first:], None, max_tokens=0)
        shadow = _Shadow(own, first, Odds([self._prior()]))
        self._shadows[sequence] = shadow
        for source, target in self._holdings.claim(own):
            self._executable.copy_page(source, target)
        return shadow

    def _prior(self) -> float:
        """Return what is expected of a sequence: others say something of it, not all."""
        return (MEAN + self._mean.share(0)) / 2

    def _take(self, shadow: _Shadow, token: int) -> None:
        """Take in the next token of the sequence."""
        shadow.sequence.tokens.append(token)
        if not shadow.guesses:
            return
        is_right = shadow.guesses[0] == token
        self._odds.count(shadow.kinds[0], is_right)
        self._mean.count(0, is_right)
        shadow.odds.count(0, is_right)
        if not is_right:
            shadow.guesses.clear()
            shadow.kinds.clear()
            shadow.n_ahead = 0
            return
        del shadow.guesses[0], shadow.kinds[0]
        if shadow.n_ahead > 0:
            shadow.n_ahead -= 1
            self._holdings.advance(shadow.sequence, 1)

    def _chances(self, shadow: _Shadow) -> list[float]:
        chances, chance = [], 1.0
        for kind in shadow.kinds:
            chance *= self._odds.share(kind)
            chances.append(chance)
        return chances

    def _goes_on(self, shadow: _Shadow, n: int, least: float) -> bool:
        """Whether another guess is wanted, and has a page."""
        n_made = len(shadow.guesses)
        if n_made >= n:
            return False
        if n_made and self._chances(shadow)[-1] * shadow.odds.share(0) < least:
            return False
        return self._holdings.extend(shadow.sequence, len(shadow.sequence.tokens) + n_made)

    def _guess_once(self, shadows: list[_Shadow]) -> bool:
        """Add a guess to each; False if that was not to be."""
        started_s = time.perf_counter()
        stretches = [_next_stretch(shadow) for shadow in shadows]
        rows = self._step(stretches)
        if rows is None:
            return False
        for shadow, row in zip(shadows, rows, strict=True):
            if shadow.guesses:
                shadow.n_ahead += 1
            else:
                self._holdings.advance(shadow.sequence, shadow.sequence.n_due)
            self._add_guess(shadow, row)
        step_s = time.perf_counter() - started_s
        self._spent_s += step_s
        self._cost.record(sum(len(s.tokens) for s in stretches), step_s)
        return True

    def _step(self, stretches: list[Stretch]) -> npt.NDArray[np.float32] | None:
        try:
            return self._executable.run(ragged(stretches), cancel=self._cancel)
        except CancelledError:  # the model's own step, which comes next, says so
            return None
        except Exception as error:
            log.warning("draft: %s; answers go on without it", error)
            self._is_off = True
            return None

    def _add_guess(self, shadow: _Shadow, row: npt.NDArray[np.float32]) -> None:
        try:
            ((token, logprob),) = score(row[: self._n_vocab], 0, 1).top
        except Exception as error:
            log.warning("draft: %s; answers go on without it", error)
            self._is_off = True
            return
        probability = float(np.exp(logprob))
        shadow.guesses.append(token)
        shadow.kinds.append(sum(least <= probability for least in LEAST) - 1)


def _next_stretch(shadow: _Shadow) -> Stretch:
    own = shadow.sequence
    if shadow.guesses:
        return Stretch(shadow.guesses[-1:], len(own.tokens) + len(shadow.guesses) - 1, own.pages, 1)
    return Stretch(own.tokens[own.n_computed :], own.n_computed, own.pages, 1)
