"""Count who uses each snapshot of recurrent state; knows ids, and neither tokens nor memory.

A sequence of a hybrid model stands at one snapshot and each step writes it another, so that it can
go back to where it was when a step fails or a guess was wrong. Some are kept beside the blocks of
prefixes that they end in, with the same life: what begins alike starts from there.
"""

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Ids
from typing import Final

from edgeinfer.engine.pages import PAGE_LEN, PagePool

NO_SNAPSHOT: Final = -1  # of a sequence of which nothing is computed, or whose model has no state
PER_SEQUENCE: Final = 2  # where it stands, and what its next step writes
MOST_SPACING: Final = 64  # pages

Places = dict[int, int]  # of one block of a prefix: after so many of its tokens, which snapshot


def spacing_of(snapshot_bytes: int, page_bytes: int) -> int:
    """Return after how many pages of a prompt a snapshot is kept.

    So many that it takes no more memory than their keys and values, and prefixes at most twice
    what they would take without state: every page where the state is small, as that of short
    convolutions is, one page in dozens where it is matrices.
    """
    return min(MOST_SPACING, -(-snapshot_bytes // max(1, page_bytes)))


class Snapshots:
    """Owners of snapshots, and those that are kept for whoever begins alike.

    A kept one that nobody else owns is given up when there is need of it, least recently used
    first. At most half of all are kept: the rest is for sequences, and for guesses, which come and
    go with every step and would push out what is kept.
    """

    def __init__(self, pool: PagePool, spacing: int) -> None:
        """Take a pool of snapshot ids, and after how many pages of a prompt one is kept."""
        self.pool = pool
        self._stride = spacing * PAGE_LEN
        self._most_kept = pool.n_pages // 2
        self._kept: OrderedDict[int, tuple[Places, int]] = OrderedDict()

    @property
    def n_kept(self) -> int:
        """How many are kept for others."""
        return len(self._kept)

    def have_room_for(self, n_sequences: int) -> bool:
        """Whether so many sequences can run together."""
        return PER_SEQUENCE * n_sequences <= self.pool.n_pages

    def wanted(self, first: int, end: int, n_prompt: int) -> list[int]:
        """List the positions after `first` and before `end` whose states are worth keeping.

        Besides those at equal distances that is the one before the last token of a prompt, which
        is computed whenever the prompt comes again.
        """
        found = set(range(first // self._stride * self._stride, end, self._stride)) | {n_prompt - 1}
        return sorted(position for position in found if first < position < end)

    def is_wanted(self, position: int, n_prompt: int) -> bool:
        """Whether the state at a position is worth keeping."""
        return position % self._stride == 0 or position == n_prompt - 1

    def take(self, n: int) -> list[int] | None:
        """Hand out `n` with one owner each, or None when too few are free or could be."""
        while (taken := self.pool.take(n)) is None:
            if not self._evict():
                return None
        return taken

    def release(self, snapshots: Ids[int]) -> None:
        """Remove an owner from each."""
        self.pool.give_back([snapshot for snapshot in snapshots if snapshot != NO_SNAPSHOT])

    def use(self, snapshot: int) -> None:
        """Add an owner to a kept one."""
        self.pool.share([snapshot])
        self._kept.move_to_end(snapshot)

    def keep(self, places: Places, length: int, snapshot: int) -> None:
        """Become an owner of a snapshot, at its place in a block."""
        if length in places or snapshot in self._kept:
            return
        self.pool.share([snapshot])
        places[length] = snapshot
        self._kept[snapshot] = (places, length)
        while len(self._kept) > self._most_kept and self._evict():
            pass

    def move(self, source: Places, target: Places) -> None:
        """Let what is kept at a block be kept at another, which begins with all of its tokens."""
        for length, snapshot in source.items():
            if target.setdefault(length, snapshot) == snapshot:
                self._kept[snapshot] = (target, length)
            else:
                self._drop(snapshot)
        source.clear()

    def drop(self, snapshots: Iterable[int]) -> None:
        """Keep these no longer, as far as they are kept."""
        for snapshot in list(snapshots):
            if snapshot in self._kept:
                places, length = self._kept[snapshot]
                del places[length]
                self._drop(snapshot)

    def _drop(self, snapshot: int) -> None:
        del self._kept[snapshot]
        self.pool.give_back([snapshot])

    def _evict(self) -> bool:
        unused = next((s for s in self._kept if self.pool.owners(s) == 1), NO_SNAPSHOT)
        if unused == NO_SNAPSHOT:
            return False
        self.drop([unused])
        return True
