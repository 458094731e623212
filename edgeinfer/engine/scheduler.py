"""Choose which sequences run next and give them pages; knows counts, no arrays and no text.

There is no phase of prompts and no phase of answers. A sequence has tokens of which some are
computed; each step lets the others catch up, as many as fit the step. A new prompt catches up in
chunks, an answer one token at a time, and later features (a cached prefix, guessed tokens) only
change how far behind a sequence is.
"""

from dataclasses import dataclass

from edgeinfer.engine.pages import PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.sequence import FinishReason, Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The next `n_tokens` tokens of `sequence`, to be computed in this step."""

    sequence: Sequence
    n_tokens: int

    @property
    def catches_up(self) -> bool:
        """Whether no token of the sequence is left to compute after this step."""
        return self.n_tokens == self.sequence.n_due


class Scheduler:
    """The running sequences, the pages they own and the finished ones kept for reuse."""

    def __init__(self, pool: PagePool, *, n_batch: int, n_rows: int, n_kept: int) -> None:
        """Take `n_batch`, the most tokens in a step, and `n_rows`, the most rows of logits."""
        self.pool = pool
        self.prefixes = PrefixCache(pool, n_kept)
        self.running: list[Sequence] = []  # in order of arrival
        self._n_batch = n_batch
        self._n_rows = n_rows

    @property
    def has_work(self) -> bool:
        """Whether any sequence could take part in a step."""
        return any(not sequence.paused for sequence in self.running)

    def add(self, sequence: Sequence) -> None:
        """Start `sequence` from the longest kept prefix of its tokens."""
        if not sequence.all_rows:
            sequence.pages, sequence.n_cached = self.prefixes.claim(sequence.tokens)
            sequence.n_computed = sequence.n_cached
        self.running.append(sequence)

    def plan(self) -> tuple[list[Work], list[Sequence]]:
        """Return the next step's work, and the sequences for which no page is left.

        Those with the fewest tokens due come first, so an answer never waits for a prompt.
        """
        work: list[Work] = []
        starved: list[Sequence] = []
        n_left, n_rows_left = self._n_batch, self._n_rows
        ready = [s for s in self.running if not s.paused]
        for sequence in sorted(ready, key=lambda s: s.n_due):
            n_tokens = min(sequence.n_due, n_left)
            if sequence.all_rows:
                n_tokens = min(n_tokens, n_rows_left)
            if n_tokens == 0 or n_rows_left == 0:
                break
            if not self._make_room(sequence, sequence.n_computed + n_tokens):
                starved.append(sequence)
                continue
            work.append(Work(sequence, n_tokens))
            n_left -= n_tokens
            n_rows_left -= n_tokens if sequence.all_rows else 1
        return work, starved

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End `sequence`; what it computed is kept unless it failed."""
        self.running.remove(sequence)
        sequence.finish_reason = reason
        pages, sequence.pages = sequence.pages, []
        if reason == "error":
            self.pool.give_back(pages)
        else:
            self.prefixes.keep(sequence.tokens[: sequence.n_computed], pages)

    def _make_room(self, sequence: Sequence, n_tokens: int) -> bool:
        """Give `sequence` pages for `n_tokens` positions, at the cost of what is only kept."""
        n_missing = pages_for(n_tokens) - len(sequence.pages)
        if n_missing <= 0:
            return True
        while (pages := self.pool.take(n_missing)) is None:
            if not self.prefixes.evict():
                return False
        sequence.pages += pages
        return True
