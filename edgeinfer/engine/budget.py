"""Say how many KV pages and snapshots memory has room for; knows bytes, no sequences."""

from dataclasses import dataclass
from typing import Final

from edgeinfer.engine.pages import pages_for
from edgeinfer.kernels.memory import memory_bytes

MOST_CONTEXTS: Final = 8  # full-length sequences the pages are for, at most
KEPT_CONTEXTS: Final = 2  # in pages of how many prefixes are kept
KEPT_SHARE: Final = 8  # of the memory there is, and of this part of it at most
LEAST_SNAPSHOTS: Final = 32  # eight sequences, and guesses of some
MOST_SNAPSHOTS: Final = 1024
RESERVE_SHARE: Final = 16  # this part of the memory is left to others


@dataclass(frozen=True, slots=True)
class Budget:
    """What the pages of a model may take.

    n_pages: most there may be; they take memory when they are first written. n_kept: the pages in
    which prefixes are kept that nobody uses. page_bytes: of one page, in all layers.
    """

    n_pages: int
    n_kept: int
    page_bytes: int

    def has_room(self, n_units: int, *, unit_bytes: int | None = None) -> bool:
        """Whether the memory that is available now has room for so many more, pages if not said."""
        available, total = memory_bytes()
        n_bytes = self.page_bytes if unit_bytes is None else unit_bytes
        return n_units * n_bytes <= available - total // RESERVE_SHARE


def snapshot_budget(snapshot_bytes: int) -> int:
    """Return how many snapshots of recurrent state there may be on this machine.

    They take memory when they are first written, and those that are kept a part of it at most.
    """
    _, total = memory_bytes()
    return min(MOST_SNAPSHOTS, max(LEAST_SNAPSHOTS, total // KEPT_SHARE // max(1, snapshot_bytes)))


def page_budget(n_ctx: int, page_bytes: int) -> Budget:
    """Return the budget for sequences of up to `n_ctx` tokens on this machine.

    It holds one full-length sequence whatever the memory: most never become that long, and a pool
    grows no further than `has_room` allows.
    """
    _, total = memory_bytes()
    n_whole = pages_for(n_ctx)
    n_pages = min(MOST_CONTEXTS * n_whole, max(n_whole, total // max(1, page_bytes)))
    n_kept = min(KEPT_CONTEXTS * n_whole, total // KEPT_SHARE // max(1, page_bytes))
    return Budget(n_pages=n_pages, n_kept=n_kept, page_bytes=page_bytes)
