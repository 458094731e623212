"""Give sequences pages and take them back, from the pool and from prefixes that nobody uses.

Knows one sequence at a time; who gives way to whom is the scheduler's to say.
"""

from edgeinfer.engine.pages import NO_PAGE, PAGE_LEN, PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.sequence import Sequence

Copy = tuple[int, int]  # of a page, from one to another


class Holdings:
    """The pool, and what is known of the pages in it.

    Prefixes are kept in up to `n_kept` pages; beyond them the pool does not grow as long as it
    holds unused ones. `window`: the longest of the layers', 0 if a layer sees everything. A page
    is one stretch of all layers' memory, so it goes only when it is behind the windows of all.
    """

    def __init__(
        self, pool: PagePool, prefixes: PrefixCache, *, n_kept: int, window: int = 0
    ) -> None:
        self.pool = pool
        self.prefixes = prefixes
        self._n_kept = n_kept
        self._window = window

    @property
    def n_available(self) -> int:
        """Pages that are free, or could be."""
        return self.pool.n_free + self.prefixes.n_unused

    def n_missing(self, sequence: Sequence) -> int:
        """Return how many more pages the tokens of `sequence`, and the next one, take."""
        n_missing = pages_for(len(sequence.tokens) + 1) - len(sequence.pages)
        if not sequence.pages:
            n_missing -= self.prefixes.n_shared(sequence.claimable, sequence.keys)
        return max(0, n_missing)

    def claim(self, sequence: Sequence) -> list[Copy]:
        """Let `sequence`, computed to the end of a page, go on from what is cached.

        A page that agrees in part is copied, because the sequence writes the rest of it.
        """
        tokens, keys = sequence.claimable, sequence.keys
        n_held = sequence.n_computed // PAGE_LEN
        if n_held * PAGE_LEN >= len(tokens) - 1:
            return []
        if found := self.prefixes.claim(tokens, keys, n_held):
            self.prefixes.release(sequence.pages[n_held:])
            sequence.pages[n_held:] = found
            n_held += len(found)
        n_computed, copies = n_held * PAGE_LEN, []
        source, n_part = self.prefixes.claim_part(tokens, keys, n_held)
        if source != NO_PAGE:
            if len(sequence.pages) > n_held or self.extend(sequence, n_computed + 1):
                copies.append((source, sequence.pages[n_held]))
                n_computed += n_part
            self.prefixes.release([source])
        sequence.n_cached += max(0, n_computed - max(sequence.n_computed, sequence.n_reached))
        self._reach(sequence, n_computed)
        return copies

    def extend(self, sequence: Sequence, n_tokens: int) -> bool:
        """Give `sequence` pages for `n_tokens` positions; False, and none, if too few are left."""
        n_missing = pages_for(n_tokens) - len(sequence.pages)
        if n_missing <= 0:
            return True
        while self.pool.n_grown_for(n_missing) > self._n_kept and self.prefixes.evict():
            pass
        while (pages := self.pool.take(n_missing)) is None:
            if not self.prefixes.evict():
                return False
        sequence.pages += pages
        return True

    def advance(self, sequence: Sequence, n_tokens: int) -> None:
        """Count so many tokens more as computed, and let their pages be known."""
        first = sequence.n_computed // PAGE_LEN
        self._reach(sequence, sequence.n_computed + n_tokens)
        for index in range(first, sequence.n_computed // PAGE_LEN):
            self.prefixes.keep(sequence.tokens, sequence.keys, index, sequence.pages[index])
        if sequence.n_generated == 0 and sequence.n_due == 0:
            self._keep_part(sequence)  # for others with the same prompt
        if self._window:
            self._prune(sequence)

    def give_up(self, sequence: Sequence) -> None:
        """Take all pages of `sequence`; what they hold stays known as long as there is room."""
        self._keep_part(sequence)
        self._release(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Take all pages of `sequence`; nothing that they hold is used again."""
        self.prefixes.forget(sequence.pages)
        self._release(sequence)

    def _keep_part(self, sequence: Sequence) -> None:
        """Let the last page be known as far as it is computed."""
        index = sequence.n_computed // PAGE_LEN
        if sequence.n_computed % PAGE_LEN:
            computed = sequence.tokens[: sequence.n_computed]
            self.prefixes.keep(computed, sequence.keys, index, sequence.pages[index])

    def _reach(self, sequence: Sequence, n_computed: int) -> None:
        sequence.n_computed = n_computed
        sequence.n_reached = max(sequence.n_reached, n_computed)

    def _release(self, sequence: Sequence) -> None:
        pages, sequence.pages = sequence.pages, []
        sequence.n_computed = sequence.n_pruned = 0
        self.prefixes.release(pages)

    def _prune(self, sequence: Sequence) -> None:
        n_behind = max(0, sequence.n_computed - self._window + 1) // PAGE_LEN
        while sequence.n_pruned < n_behind:
            self.prefixes.release([sequence.pages[sequence.n_pruned]])
            sequence.pages[sequence.n_pruned] = NO_PAGE
            sequence.n_pruned += 1
