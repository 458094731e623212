"""Find where a text repeats itself: its last tokens stood before, so the same may follow again.

Token ids go in; guesses at the next ones come out, with how often such guesses were right so far.
Knows no model: a guess is checked by whoever runs one.
"""

from collections.abc import Sequence as Ids
from typing import Final

from edgeinfer.engine.odds import Odds

LONG: Final = 4  # tokens by which an earlier place is looked up; the latest that has them is taken
SHORT: Final = 2
MOST_MATCH: Final = 32  # longer matches are not told apart
RESUMED: Final = 4  # a match of so many tokens goes on behind one that was replaced

# By the length of the match, from each of LEAST on: the share of right guesses in sampled prose.
LEAST: Final = (0, 1, 2, 3, 4, 6, 9, 16)
EXPECTED: Final = (0.15, 0.4, 0.4, 0.45, 0.45, 0.6, 0.8, 0.95)
ROW_OF: Final = tuple(
    max(row for row, least in enumerate(LEAST) if least <= n) for n in range(MOST_MATCH + 1)
)


class Lookup:
    """The place in a sequence that its end repeats, and a record of the guesses made from there.

        tokens  a b c d e f g ... a b c d | ?         the end matches 4 tokens
                        ^ source                      so e, f, g are guessed

    Every token that comes is held against its guess, whether or not the guess was put to use: to
    know how good guesses are costs nothing. After a wrong one the end is looked up anew; if nothing
    is found, the token may have replaced another, and the source goes on behind it.
    """

    __slots__ = ("_latest", "_n_seen", "_source", "n_match", "odds")

    def __init__(self) -> None:
        self._latest: dict[tuple[int, ...], int] = {}  # n tokens: the position behind them
        self._n_seen = 0
        self._source: int | None = None  # position of the token that is guessed next
        self.n_match = 0  # tokens before it that agree with the end
        self.odds = Odds(EXPECTED)

    def read(self, tokens: Ids[int], *, n_given: int) -> None:
        """Take in what `tokens` has become; the first `n_given` are no answer to any guess."""
        if self._n_seen < n_given:
            self._index(tokens, n_given)
        for position in range(self._n_seen, len(tokens)):
            self._take(tokens, position)

    @property
    def is_following(self) -> bool:
        """Whether there is anything to guess from."""
        return self._source is not None

    def guess(self, tokens: Ids[int], most: int) -> list[int]:
        """Return up to `most` tokens that may come next."""
        source = self._source
        if source is None or most <= 0:
            return []
        guesses = list(tokens[source : source + most])
        for _ in range(most - len(guesses)):  # what repeats at once runs into its own end
            guesses.append(guesses[source - len(tokens)])
        return guesses

    def chances(self, n: int) -> list[float]:
        """Return for each of the next `n` guesses how likely it and all before it are right."""
        chances, chance = [], 1.0
        for i in range(n):
            chance *= self.odds.share(ROW_OF[min(self.n_match + i, MOST_MATCH)])
            chances.append(chance)
        return chances

    def _index(self, tokens: Ids[int], end: int) -> None:
        """Take in the beginning at once, up to its last token, which is looked up."""
        first = self._n_seen
        for n in (SHORT, LONG):
            start = max(0, first - n + 1)
            runs = zip(*(tokens[start + i : end - 1] for i in range(n)), strict=False)
            self._latest.update(zip(runs, range(start + n, end), strict=False))
        self._n_seen = max(first, end - 1)
        self._find(tokens, self._n_seen)
        self._n_seen += 1

    def _take(self, tokens: Ids[int], position: int) -> None:
        source, n_match = self._source, self.n_match
        if source is not None:
            is_right = tokens[source] == tokens[position]
            self.odds.count(ROW_OF[n_match], is_right)
            if is_right:
                self._source, self.n_match = source + 1, min(n_match + 1, MOST_MATCH)
            else:
                self._source = None
        self._find(tokens, position)
        if self._source is None and source is not None and n_match >= RESUMED:
            self._source, self.n_match = source + 1, 0
        self._n_seen = position + 1

    def _find(self, tokens: Ids[int], position: int) -> None:
        """Look the end up unless it is followed already, and let it be found from now on."""
        for n in (LONG, SHORT):
            if position + 1 < n:
                continue
            run = tuple(tokens[position + 1 - n : position + 1])
            if self._source is None and (found := self._latest.get(run)) is not None:
                self._source = found
                self.n_match = _match_len(tokens, found, position + 1)
            self._latest[run] = position + 1


def _match_len(tokens: Ids[int], a: int, b: int) -> int:
    """Count the equal tokens before two positions, a < b."""
    n = 0
    while n < min(a, MOST_MATCH) and tokens[a - 1 - n] == tokens[b - 1 - n]:
        n += 1
    return n
