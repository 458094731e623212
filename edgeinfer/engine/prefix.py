"""Remember which page holds which tokens, so that a prompt which begins alike starts from there.

A block is a page's worth of tokens, and its key a hash of the block before it and its own ids, down
to a root that stands for the model, its adapter and the type of keys and values. The same ids
behind the same ids have the same keys and values bit for bit, so what starts from here equals what
is computed from its start. A model with recurrent state starts only where a snapshot of it is kept.
"""

import secrets
from array import array
from collections import OrderedDict
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from hashlib import blake2b

from edgeinfer.engine.pages import NO_PAGE, PAGE_LEN, PagePool
from edgeinfer.engine.state import Places, Snapshots

KEY_BYTES = 16
LEAST_PART = 8  # tokens that are worth the copy of a page; so many take one call of a kernel


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """`page` holds `tokens`, 1 to PAGE_LEN of them, behind the blocks that `parent` stands for."""

    key: bytes
    parent: bytes
    tokens: list[int]
    page: int
    states: Places = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reached:
    """Whole pages, `n_part` positions of the page `source` behind them, and the state there.

    Each has one owner more.
    """

    pages: list[int]
    source: int
    n_part: int
    snapshot: int


class PrefixCache:
    """An owner of every page whose tokens it knows; those nobody else owns are the unused ones.

        root --- page 7 --- page 3 --- page 9 (20 tokens)     a finished conversation
                       `--- page 4                            another one with its beginning

    Whole blocks are shared. Of a block that agrees in part the page is copied, since what follows
    is written into it; so a page may be known in part while its sequence fills the rest.
    Unused pages are given up, least recently used first, a chain from its end.
    """

    def __init__(
        self, pool: PagePool, fingerprint: bytes = b"", snapshots: Snapshots | None = None
    ) -> None:
        """Take the fingerprint of all that decides what keys and values tokens have.

        `snapshots` are those of a model with recurrent state.
        """
        self._pool = pool
        self._snapshots = snapshots
        self._secret = secrets.token_bytes(32)  # so that nobody can prepare equal keys
        self.root = self._hash(fingerprint)
        self._blocks: dict[bytes, _Block] = {}
        self._of_page: dict[int, _Block] = {}
        self._children: dict[bytes, list[_Block]] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()  # pages, least recently used first

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def n_unused(self) -> int:
        """Pages that `evict` could give up."""
        return len(self._unused)

    def key_of(self, tokens: Ids[int], keys: list[bytes], index: int) -> bytes:
        """Return the key of whole block `index`; `keys`, those known of `tokens`, grow to it."""
        for i in range(len(keys), index + 1):
            keys.append(self._key(keys[i - 1] if i else self.root, _ids_of(tokens, i)))
        return keys[index]

    def part_key(self, tokens: Ids[int], keys: list[bytes], index: int) -> bytes | None:
        """Return a key of what could be found of block `index`, None if it is not worth a search.

        The last token of a prompt is computed in any case.
        """
        if (index + 1) * PAGE_LEN < len(tokens):
            return self.key_of(tokens, keys, index)
        wanted = list(tokens[index * PAGE_LEN : len(tokens) - 1])
        if len(wanted) < LEAST_PART:
            return None
        return self._key(self.key_of(tokens, keys, index - 1) if index else self.root, wanted)

    def n_shared(self, tokens: Ids[int], keys: list[bytes]) -> int:
        """Return how many leading pages of `tokens` others are using at the moment."""
        n = 0
        while (
            block := self._whole(tokens, keys, n)
        ) is not None and block.page not in self._unused:
            n += 1
        return n

    def n_known(self, tokens: Ids[int], keys: list[bytes], n_held: int) -> int:
        """Return how many whole blocks from block `n_held` on are known."""
        n = 0
        while self._whole(tokens, keys, n_held + n) is not None:
            n += 1
        return n

    def claim(self, tokens: Ids[int], keys: list[bytes], n_held: int) -> list[int]:
        """Return the pages of the known whole blocks from block `n_held` on, with one owner more.

        The last token is never part of them: its logits are wanted, so it is computed again.
        """
        pages: list[int] = []
        while (block := self._whole(tokens, keys, n_held + len(pages))) is not None:
            pages.append(block.page)
        self._use(pages)
        return pages

    def claim_part(self, tokens: Ids[int], keys: list[bytes], n_held: int) -> tuple[int, int]:
        """Return the page that agrees longest with what follows `n_held` blocks, and how long.

        The caller becomes an owner, to copy the page and release it; of (NO_PAGE, 0) there is none.
        """
        wanted = _wanted(tokens, n_held)
        best, n_common = None, LEAST_PART - 1
        for block in self._children.get(self._parent(tokens, keys, n_held), ()):
            n = _common_len(block.tokens, wanted)
            if n > n_common:
                best, n_common = block, n
        if best is None:
            return NO_PAGE, 0
        self._use([best.page])
        return best.page, n_common

    def claim_state(self, tokens: Ids[int], keys: list[bytes], n_held: int) -> Reached | None:
        """Return what is known behind `n_held` blocks, as far as a snapshot is kept; maybe nothing.

        The last token is never part of it.
        """
        assert self._snapshots is not None
        whole: list[_Block] = []
        while (block := self._whole(tokens, keys, n_held + len(whole))) is not None:
            whole.append(block)
        for n in range(len(whole), -1, -1):
            block, length = self._farthest_state(tokens, keys, n_held + n)
            if block is None:
                continue
            pages = [known.page for known in whole[:n]]
            self._use([*pages, block.page])
            self._snapshots.use(block.states[length])
            if length == PAGE_LEN:
                return Reached([*pages, block.page], NO_PAGE, 0, block.states[length])
            return Reached(pages, block.page, length, block.states[length])
        return None

    def keep_state(self, tokens: Ids[int], keys: list[bytes], n_tokens: int, snapshot: int) -> None:
        """Remember the state after so many of `tokens`, if the block it ends in is known."""
        assert self._snapshots is not None
        index = (n_tokens - 1) // PAGE_LEN
        ids = _ids_of(tokens[:n_tokens], index)
        for block in self._children.get(self._parent(tokens, keys, index), ()):
            if _common_len(block.tokens, ids) == len(ids):
                self._snapshots.keep(block.states, len(ids), snapshot)
                return

    def keep(self, tokens: Ids[int], keys: list[bytes], index: int, page: int) -> None:
        """Remember that `page` holds block `index` of `tokens`, whole or, the last, in part."""
        held = _ids_of(tokens, index)
        if not held:
            return
        parent = self._parent(tokens, keys, index)
        is_whole = len(held) == PAGE_LEN
        key = self.key_of(tokens, keys, index) if is_whole else self._key(parent, held)
        if key in self._blocks:
            return
        states: Places = {}
        if (before := self._of_page.get(page)) is not None:
            if len(before.tokens) >= len(held):
                return
            self._replace(before, states)  # the page has been filled further
        siblings = self._children.get(parent, [])
        covering = (b for b in siblings if _common_len(b.tokens, held) == len(held))
        if not is_whole and (longer := next(covering, None)) is not None:
            self._move(states, longer.states)
            return
        for block in [b for b in siblings if _common_len(b.tokens, held) == len(b.tokens)]:
            if block.page in self._unused:  # it answers nothing that the longer one cannot
                self._replace(block, states)
        block = _Block(key, parent, held, page, states)
        self._blocks[key] = self._of_page[page] = block
        self._children.setdefault(parent, []).append(block)
        self._pool.share([page])

    def release(self, pages: Ids[int]) -> None:
        """Remove an owner from each of `pages`, a sequence's in order; known ones become unused."""
        pages = [page for page in pages if page != NO_PAGE]
        self._pool.give_back(pages)
        for page in reversed(pages):
            if page in self._of_page and self._pool.owners(page) == 1:
                self._unused[page] = None

    def forget(self, pages: Ids[int]) -> None:
        """Know nothing any more of these pages, nor of what was computed behind them."""
        left = [self._of_page[page] for page in pages if page in self._of_page]
        while left:
            block = left.pop()
            if self._blocks.get(block.key) is block:
                left += self._children.get(block.key, ())
                self._drop(block)

    def evict(self) -> bool:
        """Give up the page used least recently; False when every page is in use."""
        if not self._unused:
            return False
        self._drop(self._of_page[next(iter(self._unused))])
        return True

    def _whole(self, tokens: Ids[int], keys: list[bytes], index: int) -> _Block | None:
        if (index + 1) * PAGE_LEN >= len(tokens):
            return None
        block = self._blocks.get(self.key_of(tokens, keys, index))
        return block if block is not None and block.tokens == _ids_of(tokens, index) else None

    def _farthest_state(
        self, tokens: Ids[int], keys: list[bytes], index: int
    ) -> tuple[_Block | None, int]:
        """Return the block with the farthest state of block `index` of `tokens`, and how far."""
        wanted = _wanted(tokens, index)
        best, farthest = None, 0
        for block in self._children.get(self._parent(tokens, keys, index), ()):
            if not block.states:
                continue
            n = _common_len(block.tokens, wanted)
            length = max((at for at in block.states if at <= n), default=0)
            if length > farthest:
                best, farthest = block, length
        return best, farthest

    def _parent(self, tokens: Ids[int], keys: list[bytes], index: int) -> bytes:
        return self.key_of(tokens, keys, index - 1) if index else self.root

    def _use(self, pages: list[int]) -> None:
        self._pool.share(pages)
        for page in pages:
            self._unused.pop(page, None)

    def _replace(self, block: _Block, states: Places) -> None:
        """Drop a block for one that begins with its tokens, which gets its states."""
        self._move(block.states, states)
        self._drop(block)

    def _move(self, states: Places, target: Places) -> None:
        if self._snapshots is not None:
            self._snapshots.move(states, target)

    def _drop(self, block: _Block) -> None:
        if self._snapshots is not None:
            self._snapshots.drop(block.states.values())
        del self._blocks[block.key], self._of_page[block.page]
        self._unused.pop(block.page, None)
        siblings = self._children[block.parent]
        siblings.remove(block)
        if not siblings:
            del self._children[block.parent]
        self._pool.give_back([block.page])

    def _key(self, parent: bytes, ids: list[int]) -> bytes:
        return self._hash(parent + array("i", ids).tobytes())

    def _hash(self, content: bytes) -> bytes:
        return blake2b(content, key=self._secret, digest_size=KEY_BYTES).digest()


def _ids_of(tokens: Ids[int], index: int) -> list[int]:
    return list(tokens[index * PAGE_LEN : (index + 1) * PAGE_LEN])


def _wanted(tokens: Ids[int], index: int) -> Ids[int]:
    """Return the ids of a block, and never the last token, which is computed in any case."""
    start = index * PAGE_LEN
    return tokens[start : min(start + PAGE_LEN, len(tokens) - 1)]


def _common_len(a: Ids[int], b: Ids[int]) -> int:
    """Count equal leading ids."""
    for n, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return n
    return min(len(a), len(b))
