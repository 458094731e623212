"""Move prefixes between the pages of an executable and where they are kept. Knows no file.

Belongs to the engine's thread, like everything that touches pages; a step never runs meanwhile.
"""

import logging
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Protocol

from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.pages import NO_PAGE, PAGE_LEN, pages_for
from edgeinfer.engine.prefix import LEAST_PART, Reached
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.state import NO_SNAPSHOT, Snapshots
from edgeinfer.errors import EdgeInferError
from edgeinfer.kernels.backend import Executable, PageBytes

log = logging.getLogger(__name__)

NO_TOKEN = 0  # stands for any that comes after a prefix


class Stored(Protocol):
    """Tokens whose keys and values are kept somewhere."""

    @property
    def tokens(self) -> Ids[int]:
        """The tokens, in pages of PAGE_LEN."""

    def page(self, index: int) -> PageBytes:
        """Return the bytes of a page. Raises SessionError or OSError."""

    def state(self) -> PageBytes:
        """Return the recurrent state behind the tokens, if the model has any; raises likewise."""


@dataclass(frozen=True, slots=True)
class Held:
    """Pages of the first `n_tokens` tokens of a prefix, and the state there, with an owner more."""

    pages: list[int]
    n_tokens: int
    snapshot: int = NO_SNAPSHOT


class Storage:
    """The prefixes on disk that a model knows, and the way in and out of its pages."""

    def __init__(self, holdings: Holdings, executable: Executable, stored: Ids[Stored]) -> None:
        self._holdings = holdings
        self._executable = executable
        self._snapshots = holdings.snapshots
        self.stored = list(stored)

    def provide(self, tokens: Ids[int]) -> None:
        """Bring in the stored prefix that has most in common with `tokens`, if it is not known.

        One that cannot be read is told in the log and not asked for again.
        """
        found, n_common = None, LEAST_PART - 1
        for stored in self.stored:
            n = _n_common(stored.tokens, tokens)
            if self._snapshots is not None and not n == len(stored.tokens) < len(tokens):
                continue  # its state is the one behind its last token, and before one to compute
            if n > n_common:
                found, n_common = stored, n
        if found is None:
            return
        try:
            self.restore(found, n_tokens=pages_for(n_common) * PAGE_LEN)
        except (EdgeInferError, OSError) as error:
            log.warning("%s; the prompt is read without it", error)
            self.stored.remove(found)

    def restore(
        self, stored: Stored, *, n_tokens: int | None = None, most_pages: int | None = None
    ) -> int:
        """Let the first tokens of `stored` be known; return how many of them are.

        Reads `most_pages` that are not known yet at most, and as many as find room. What a page
        raises leaves those before it known. A hybrid goes on behind all of them, or not at all.
        """
        tokens = list(stored.tokens[:n_tokens])
        if self._snapshots is not None and self._has_state(tokens):
            return len(tokens)
        n_known = self._restore_pages(stored, tokens, most_pages)
        if self._snapshots is None or n_known < len(tokens):
            return n_known
        return n_known if self._restore_state(stored, tokens, self._snapshots) else 0

    def _restore_pages(self, stored: Stored, tokens: list[int], most_pages: int | None) -> int:
        sequence = Sequence([*tokens, NO_TOKEN], None, max_tokens=0)
        sequence.pages = self._holdings.prefixes.claim(sequence.tokens, sequence.keys, 0)
        sequence.n_computed = len(sequence.pages) * PAGE_LEN
        most_pages = pages_for(len(tokens)) if most_pages is None else most_pages
        try:
            for index in range(len(sequence.pages), pages_for(len(tokens))):
                n = min(PAGE_LEN, len(tokens) - sequence.n_computed)
                if self._is_known(sequence, n):
                    return len(tokens)
                if most_pages == 0 or not self._bring(sequence, n, stored, index):
                    break
                most_pages -= 1
            return sequence.n_computed
        finally:
            self._holdings.give_up(sequence)

    def hold(self, tokens: Ids[int]) -> Held:
        """Become an owner of the pages that hold `tokens`, as far as they are known."""
        prefixes, keys = self._holdings.prefixes, list[bytes]()
        wanted = [*tokens, NO_TOKEN]
        if self._snapshots is not None:
            return _held(prefixes.claim_state(wanted, keys, 0))
        pages = prefixes.claim(wanted, keys, 0)
        source, n_part = prefixes.claim_part(wanted, keys, len(pages))
        n_tokens = len(pages) * PAGE_LEN + n_part
        return Held(pages if source == NO_PAGE else [*pages, source], n_tokens)

    def read(self, held: Held, index: int) -> PageBytes:
        """Return a held page as bytes, and nothing that others wrote behind its tokens."""
        n_positions = min(PAGE_LEN, held.n_tokens - index * PAGE_LEN)
        return self._executable.read_page(held.pages[index], n_positions)

    def read_state(self, held: Held) -> PageBytes:
        """Return the recurrent state behind the held tokens as bytes."""
        return self._executable.read_snapshot(held.snapshot)

    def release(self, held: Held) -> None:
        """Own the pages and the state no longer."""
        self._holdings.prefixes.release(held.pages)
        if self._snapshots is not None:
            self._snapshots.release([held.snapshot])

    def _restore_state(self, stored: Stored, tokens: list[int], snapshots: Snapshots) -> bool:
        """Let the state behind known tokens be known; False if there is no room for it."""
        data, taken = stored.state(), snapshots.take(1)
        if taken is None:
            return False
        self._executable.write_snapshot(taken[0], data)
        self._holdings.prefixes.keep_state(tokens, [], len(tokens), taken[0])
        snapshots.release(taken)
        return self._has_state(tokens)

    def _has_state(self, tokens: list[int]) -> bool:
        """Whether all tokens are known, and the state behind them."""
        held = self.hold(tokens)
        self.release(held)
        return held.n_tokens == len(tokens)

    def _is_known(self, sequence: Sequence, n: int) -> bool:
        """Whether the next `n` tokens, part of a page, are known, or too few to be found.

        A hybrid finds any number of them.
        """
        if n == PAGE_LEN:
            return False
        n_held = len(sequence.pages)
        prefixes = self._holdings.prefixes
        page, n_part = prefixes.claim_part(sequence.tokens, sequence.keys, n_held)
        if page != NO_PAGE:
            prefixes.release([page])
        return n_part == n or (n < LEAST_PART and self._snapshots is None)

    def _bring(self, sequence: Sequence, n: int, stored: Stored, index: int) -> bool:
        data = stored.page(index)
        if not self._holdings.extend(sequence, sequence.n_computed + n):
            return False
        self._executable.write_page(sequence.pages[index], data)
        self._holdings.advance(sequence, n)
        return True


def _held(reached: Reached | None) -> Held:
    if reached is None:
        return Held([], 0)
    pages = reached.pages if reached.source == NO_PAGE else [*reached.pages, reached.source]
    return Held(pages, len(reached.pages) * PAGE_LEN + reached.n_part, reached.snapshot)


def _n_common(a: Ids[int], b: Ids[int]) -> int:
    """Count equal leading ids, whole pages at a time as long as they agree."""
    n = 0
    while n < len(a) and list(a[n : n + PAGE_LEN]) == list(b[n : n + PAGE_LEN]):
        n += PAGE_LEN
    n = min(n, len(a))
    for left, right in zip(a[n : n + PAGE_LEN], b[n : n + PAGE_LEN], strict=False):
        if left != right:
            break
        n += 1
    return n
