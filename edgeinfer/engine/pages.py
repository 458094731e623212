"""Count who uses each KV page; knows page ids, and neither tokens nor memory."""

from collections.abc import Sequence as Ids

from edgeinfer.kernels.backend import PAGE_LEN

__all__ = ["PAGE_LEN", "PagePool", "pages_for"]


def pages_for(n_tokens: int) -> int:
    """Return how many pages hold `n_tokens` positions."""
    return -(-n_tokens // PAGE_LEN)


class PagePool:
    """A free list and a reference count per page.

    A page may belong to several sequences as long as nobody writes it: the whole pages of a
    common prefix. The free list is a stack, so the memory behind the pages, which the system
    hands out at the first touch, grows to the most that was ever needed and no further.
    """

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self._free = list(range(n_pages - 1, -1, -1))
        self._owners = [0] * n_pages

    @property
    def n_free(self) -> int:
        """Pages nobody owns."""
        return len(self._free)

    def owners(self, page: int) -> int:
        """Return how many own `page`."""
        return self._owners[page]

    def take(self, n: int) -> list[int] | None:
        """Hand out `n` free pages with one owner each, or None when there are too few."""
        if n > len(self._free):
            return None
        taken = [self._free.pop() for _ in range(n)]
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
