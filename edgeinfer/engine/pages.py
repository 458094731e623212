"""Count who uses each KV page; knows page ids, and neither tokens nor memory."""

from collections.abc import Callable
from collections.abc import Sequence as Ids

from edgeinfer.kernels.backend import PAGE_LEN

__all__ = ["NO_PAGE", "PAGE_LEN", "PagePool", "pages_for"]

NO_PAGE = -1  # stands in a sequence's list for a page that no window reaches any more
STRIDE = 16  # pages that are asked for at once when the pool grows


def pages_for(n_tokens: int) -> int:
    """Return how many pages hold `n_tokens` positions."""
    return -(-n_tokens // PAGE_LEN)


class PagePool:
    """A free list and a reference count per page.

    A page may belong to several owners as long as nobody writes it. One that was never handed out
    has no memory yet: the system gives it at the first touch. So pages that came back go first,
    and the pool grows, by the lowest ids there are, only when none is left and `has_room` says
    that there is memory for so many more.
    """

    def __init__(self, n_pages: int, *, has_room: Callable[[int], bool] | None = None) -> None:
        self.n_pages = n_pages
        self.n_touched = 0  # ids below it were handed out before
        self._free: list[int] = []  # of those, a stack
        self._owners = [0] * n_pages
        self._has_room = has_room
        self._n_granted = 0 if has_room else n_pages

    @property
    def n_free(self) -> int:
        """Pages nobody owns."""
        return len(self._free) + self.n_pages - self.n_touched

    def owners(self, page: int) -> int:
        """Return how many own `page`."""
        return self._owners[page]

    def n_grown_for(self, n: int) -> int:
        """Return how many pages the pool would have touched once it handed out `n` more."""
        return self.n_touched + max(0, n - len(self._free))

    def take(self, n: int) -> list[int] | None:
        """Hand out `n` free pages with one owner each, or None when there are too few."""
        n_touched = self.n_grown_for(n)
        if not self._may_grow(n_touched):
            return None
        taken = [self._free.pop() for _ in range(min(n, len(self._free)))]
        taken += range(self.n_touched, n_touched)
        self.n_touched = n_touched
        for page in taken:
            self._owners[page] = 1
        return taken

    def share(self, pages: Ids[int]) -> None:
        """Add an owner to each of `pages`, which somebody owns already."""
        for page in pages:
            assert self._owners[page] > 0
            self._owners[page] += 1

    def give_back(self, pages: Ids[int]) -> None:
        """Remove an owner from each of `pages`; those without one are free, the first on top."""
        for page in reversed(pages):
            assert self._owners[page] > 0
            self._owners[page] -= 1
            if self._owners[page] == 0:
                self._free.append(page)

    def _may_grow(self, n_touched: int) -> bool:
        if n_touched <= self._n_granted:
            return True
        if n_touched > self.n_pages or self._has_room is None:
            return False
        for wanted in (min(n_touched + STRIDE, self.n_pages), n_touched):
            if self._has_room(wanted - self._n_granted):
                self._n_granted = wanted
                return True
        return False
