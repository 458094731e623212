"""Give sequences pages and take them back, from the pool and from prefixes that nobody uses.

Snapshots of recurrent state, where a model has any, come and go with them. Knows one sequence at a
time; who gives way to whom is the scheduler's to say.
"""

from edgeinfer.engine.pages import NO_PAGE, PAGE_LEN, PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache, Reached
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.state import NO_SNAPSHOT, Snapshots

Copy = tuple[int, int]  # of a page, from one to another


class Holdings:
    """The pool, and what is known of the pages in it.

    Prefixes are kept in up to `n_kept` pages; beyond them the pool does not grow as long as it
    holds unused ones. `window`: the longest of the layers', 0 if a layer sees everything. A page
    is one stretch of all layers' memory, so it goes only when it is behind the windows of all.
    `whole_sequences`: a step takes all tokens of a sequence or none, and no prefix is of use.
    """

    def __init__(
        self,
        pool: PagePool,
        prefixes: PrefixCache,
        *,
        n_kept: int,
        window: int = 0,
        snapshots: Snapshots | None = None,
        whole_sequences: bool = False,
    ) -> None:
        self.whole_sequences = whole_sequences
        self.pool = pool
        self.snapshots = snapshots
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
        if not sequence.pages and self.snapshots is None and not self.whole_sequences:
            n_missing -= self.prefixes.n_shared(sequence.claimable, sequence.keys)
        return max(0, n_missing)

    def has_room_beside(self, n_running: int) -> bool:
        """Whether there are snapshots for one more sequence, where the model has any."""
        return self.snapshots is None or self.snapshots.have_room_for(n_running + 1)

    def first_unknown(self, sequence: Sequence) -> int:
        """Return the first block of `sequence`, which has claimed all it could, that nobody knows.

        A hybrid's is not always its next one: a snapshot to start from may come only later.
        """
        n_held = sequence.n_computed // PAGE_LEN
        if self.snapshots is None:
            return n_held
        return n_held + self.prefixes.n_known(sequence.claimable, sequence.keys, n_held)

    def claim(self, sequence: Sequence) -> list[Copy]:
        """Let `sequence`, computed to the end of a page, go on from what is cached.

        A page that agrees in part is copied, because the sequence writes the rest of it.
        """
        if self.whole_sequences:
            return []
        tokens, keys = sequence.claimable, sequence.keys
        n_held = sequence.n_computed // PAGE_LEN
        if n_held * PAGE_LEN >= len(tokens) - 1:
            return []
        if self.snapshots is not None:
            found_state = self.prefixes.claim_state(tokens, keys, n_held)
            return [] if found_state is None else self._go_on(sequence, found_state)
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
        self._reach_cached(sequence, n_computed)
        return copies

    def _go_on(self, sequence: Sequence, found: Reached) -> list[Copy]:
        """Let `sequence` stand at a snapshot, with the pages up to it; not without all of them."""
        assert self.snapshots is not None
        n_held = sequence.n_computed // PAGE_LEN
        self.prefixes.release(sequence.pages[n_held:])
        sequence.pages[n_held:] = found.pages
        n_computed, copies = len(sequence.pages) * PAGE_LEN + found.n_part, []
        if found.source != NO_PAGE:
            has_page = self.extend(sequence, n_computed)
            self.prefixes.release([found.source])
            if not has_page:
                self.prefixes.release(sequence.pages[n_held:])
                del sequence.pages[n_held:]
                self.snapshots.release([found.snapshot])
                return []
            copies.append((found.source, sequence.pages[-1]))
        self.snapshots.release([sequence.snapshot])
        sequence.snapshot = found.snapshot
        self._reach_cached(sequence, n_computed)
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

    def reserve(self, sequence: Sequence, n_tokens: int) -> bool:
        """Give `sequence` what a step up to `n_tokens` writes; False if something is left too few.

        Those are its pages, and snapshots of the states after the step and on its way.
        """
        if not self.extend(sequence, n_tokens):
            return False
        if self.snapshots is None:
            return True
        self.settle(sequence)
        taken = self.snapshots.take(1)
        if taken is None:
            return False
        sequence.saves[n_tokens] = taken[0]
        for at in self.snapshots.wanted(sequence.n_computed, n_tokens, sequence.n_prompt):
            if (taken := self.snapshots.take(1)) is None:
                break
            sequence.saves[at] = taken[0]
        return True

    def reserve_guesses(self, sequence: Sequence, n_guesses: int) -> int:
        """Give `sequence`, in a step, what so many guesses write; return for how many there is."""
        n_known = len(sequence.tokens)
        if not self.extend(sequence, n_known + n_guesses):
            n_guesses = len(sequence.pages) * PAGE_LEN - n_known
        if self.snapshots is None:
            return n_guesses
        for n in range(n_guesses):
            if (taken := self.snapshots.take(1)) is None:
                return n
            sequence.saves[n_known + n + 1] = taken[0]
        return n_guesses

    def settle(self, sequence: Sequence) -> None:
        """Take back what the step of `sequence` wrote, or was to write, and nobody needs."""
        if sequence.saves and self.snapshots is not None:
            self.snapshots.release(list(sequence.saves.values()))
            sequence.saves = {}

    def advance(self, sequence: Sequence, n_tokens: int) -> None:
        """Count so many tokens more as computed, and let their pages be known."""
        first = sequence.n_computed // PAGE_LEN
        self._reach(sequence, sequence.n_computed + n_tokens)
        if self.whole_sequences:
            return
        for index in range(first, sequence.n_computed // PAGE_LEN):
            self.prefixes.keep(sequence.tokens, sequence.keys, index, sequence.pages[index])
        if sequence.n_generated == 0 and sequence.n_due == 0:
            self._keep_part(sequence)  # for others with the same prompt
        if self.snapshots is not None:
            self._advance_state(sequence, self.snapshots)
        if self._window:
            self._prune(sequence)

    def give_up(self, sequence: Sequence) -> None:
        """Take all pages of `sequence`; what they hold stays known as long as there is room."""
        if not self.whole_sequences:
            self._keep_part(sequence)
        if self.snapshots is not None and sequence.snapshot != NO_SNAPSHOT:
            self._keep_state(sequence, self.snapshots)
        self._release(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Take all pages of `sequence`; nothing that they hold is used again."""
        self.prefixes.forget(sequence.pages)
        if self.snapshots is not None:
            self.snapshots.drop(sequence.kept_states)
        self._release(sequence)

    def _keep_part(self, sequence: Sequence) -> None:
        """Let the last page be known as far as it is computed."""
        index = sequence.n_computed // PAGE_LEN
        if sequence.n_computed % PAGE_LEN:
            computed = sequence.tokens[: sequence.n_computed]
            self.prefixes.keep(computed, sequence.keys, index, sequence.pages[index])

    def _advance_state(self, sequence: Sequence, snapshots: Snapshots) -> None:
        """Let the sequence stand where the step has brought it, and states on its way be known."""
        for position in sorted(sequence.saves):
            if position > sequence.n_computed:
                break
            snapshots.release([sequence.snapshot])
            sequence.snapshot = sequence.saves.pop(position)
            if snapshots.is_wanted(position, sequence.n_prompt):
                if position % PAGE_LEN:
                    self._keep_part(sequence)
                self._keep_state(sequence, snapshots, position)

    def _keep_state(
        self, sequence: Sequence, snapshots: Snapshots, n_tokens: int | None = None
    ) -> None:
        """Let the state of `sequence` be known, at the end of what is computed or before."""
        n_tokens = sequence.n_computed if n_tokens is None else n_tokens
        self.prefixes.keep_state(sequence.tokens, sequence.keys, n_tokens, sequence.snapshot)
        sequence.kept_states.append(sequence.snapshot)

    def _reach_cached(self, sequence: Sequence, n_computed: int) -> None:
        sequence.n_cached += max(0, n_computed - max(sequence.n_computed, sequence.n_reached))
        self._reach(sequence, n_computed)

    def _reach(self, sequence: Sequence, n_computed: int) -> None:
        sequence.n_computed = n_computed
        sequence.n_reached = max(sequence.n_reached, n_computed)

    def _release(self, sequence: Sequence) -> None:
        pages, sequence.pages = sequence.pages, []
        sequence.n_computed = sequence.n_pruned = 0
        self.prefixes.release(pages)
        if self.snapshots is not None:
            self.settle(sequence)
            self.snapshots.release([sequence.snapshot])
            sequence.snapshot = NO_SNAPSHOT

    def _prune(self, sequence: Sequence) -> None:
        n_behind = max(0, sequence.n_computed - self._window + 1) // PAGE_LEN
        while sequence.n_pruned < n_behind:
            self.prefixes.release([sequence.pages[sequence.n_pruned]])
            sequence.pages[sequence.n_pruned] = NO_PAGE
            sequence.n_pruned += 1
