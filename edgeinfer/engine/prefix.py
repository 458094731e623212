"""Keep the pages of finished sequences, so that a prompt which begins alike continues them.

What is kept is reused by token ids alone: the same ids at the same positions have the same keys
and values bit for bit, so a continued sequence equals one computed from its start.
"""

from collections.abc import Sequence as Ids
from dataclasses import dataclass

from edgeinfer.engine.pages import PAGE_LEN, PagePool, pages_for


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    tokens: list[int]  # exactly those whose keys and values lie in `pages`
    pages: list[int]


class PrefixCache:
    """The last few finished sequences, most recently used last."""

    def __init__(self, pool: PagePool, n_kept: int) -> None:
        self._pool = pool
        self._n_kept = n_kept
        self._kept: list[_Kept] = []

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, tokens: list[int], pages: list[int]) -> None:
        """Become an owner of `pages` in the caller's place; they hold `tokens`, computed."""
        n_needed = pages_for(len(tokens))
        self._pool.give_back(pages[n_needed:])
        if not tokens:
            return
        for kept in [k for k in self._kept if _common_len(k.tokens, tokens) == len(k.tokens)]:
            self._drop(kept)  # it can answer nothing that the longer one cannot
        self._kept.append(_Kept(tokens, pages[:n_needed]))
        if len(self._kept) > self._n_kept:
            self._drop(self._kept[0])

    def claim(self, tokens: Ids[int]) -> tuple[list[int], int]:
        """Return the pages that hold the longest kept prefix of `tokens`, and its length.

        The caller becomes an owner. The last token is never part of the prefix: its logits are
        wanted, so it has to be computed again.

            kept    | page 7 | page 3 | pag.. |       a chat's next turn: taken over whole,
            prompt  | same   | same   | same + more   page 3 and the part-filled one included

            kept    | page 7 | page 3 | page 5 | ..   another chat with the same system prompt:
            prompt  | same   | di...                  page 7 is shared, the other chat stays
        """
        best, n_common = None, 0
        for kept in self._kept:
            n = min(_common_len(kept.tokens, tokens), len(tokens) - 1)
            if n > n_common:
                best, n_common = kept, n
        if best is None:
            return [], 0
        n_whole = n_common // PAGE_LEN
        is_whole_prompt = n_common == len(tokens) - 1
        if self._continues(best, n_common, is_whole_prompt):
            n_needed = pages_for(n_common)
            self._kept.remove(best)
            self._pool.give_back(best.pages[n_needed:])
            return best.pages[:n_needed], n_common
        shared = best.pages[:n_whole]
        self._pool.share(shared)
        self._kept.remove(best)
        self._kept.append(best)
        return shared, n_whole * PAGE_LEN

    def evict(self) -> bool:
        """Give back the pages used least recently; False when nothing is kept."""
        if not self._kept:
            return False
        self._drop(self._kept[0])
        return True

    def _continues(self, kept: _Kept, n_common: int, is_whole_prompt: bool) -> bool:
        """Whether it is the same conversation, and the page to be written next is its alone.

        It is the same where the prompt adds nothing (another try), or uses most of what is kept.
        """
        if not is_whole_prompt and 2 * n_common < len(kept.tokens):
            return False
        n_whole = n_common // PAGE_LEN
        return n_common % PAGE_LEN == 0 or self._pool.owners(kept.pages[n_whole]) == 1

    def _drop(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        self._pool.give_back(kept.pages)


def _common_len(a: Ids[int], b: Ids[int]) -> int:
    """Count equal leading ids, a page's worth in one comparison."""
    n = min(len(a), len(b))
    for start in range(0, n, PAGE_LEN):
        end = min(start + PAGE_LEN, n)
        if a[start:end] != b[start:end]:
            return next(i for i in range(start, end) if a[i] != b[i])
    return n
