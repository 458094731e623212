"""Find the per-head ops around each KV append that can run as one: norm, rotation, append."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgeinfer.kernels.native.uses import Uses
from edgeinfer.program.ops import Attention, KvStore, RmsNorm, Rope
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value


@dataclass(frozen=True, slots=True)
class Chain:
    """start -> [norm per head] -> [rope] -> end, each link read by the next alone."""

    start: Value
    end: Value
    heads: int
    norm: RmsNorm | None
    rope: Rope | None
    absorbed: frozenset[int]


@dataclass(frozen=True, slots=True)
class HeadsPlan:
    """What one HEADS op does for a KV append: the keys' chain, the queries' if it can join."""

    k: Chain
    q: Chain | None
    absorbed: frozenset[int]

    @property
    def eps(self) -> float:
        """The norms' epsilon, 0 where there is no norm."""
        norm = self.k.norm or (self.q.norm if self.q else None)
        return norm.eps if norm else 0.0


def plan_heads(program: Program, uses: Uses) -> Mapping[int, HeadsPlan]:
    """Map the index of each KV append to its plan."""
    attentions: dict[int, list[Attention]] = {}
    for attention in program.attentions():
        attentions.setdefault(attention.kv, []).append(attention)
    plans: dict[int, HeadsPlan] = {}
    for i, op in enumerate(program.ops):
        if not isinstance(op, KvStore):
            continue
        k = _chain(uses, op.k, program.kv(op.kv).n_kv_heads, i)
        readers = attentions.get(op.kv, [])
        # others that read what this one keeps come after it: their queries turn alone
        q = None
        if readers and readers[0].q.rows is op.k.rows:
            q = _chain(uses, readers[0].q, readers[0].heads, i)
        if q is not None and not (q.absorbed and _agree(q, k)):
            q = None
        plans[i] = HeadsPlan(k, q, k.absorbed | (q.absorbed if q else frozenset()))
    return plans


def _chain(uses: Uses, end: Value, heads: int, before: int) -> Chain:
    start, norm, rope, absorbed = end, None, None, set()
    found = uses.maker(start, Rope)
    if found and found[0] < before and found[1].heads == heads and found[1].axis is None:
        absorbed.add(found[0])
        rope = found[1]
        start = rope.x
    normed = uses.maker(start, RmsNorm)
    if normed and normed[0] < before and _is_shared(normed[1], heads):
        absorbed.add(normed[0])
        norm = normed[1]
        start = norm.x
    return Chain(start, end, heads, norm, rope, frozenset(absorbed))


def _is_shared(norm: RmsNorm, heads: int) -> bool:
    """Whether a norm is of these heads, by one weight for all of them."""
    return norm.groups == heads and (
        norm.weight is None or norm.weight.size == norm.x.width // heads
    )


def _agree(q: Chain, k: Chain) -> bool:
    """Whether one op can turn and norm both: the same table, the same epsilon."""
    if (q.rope is None) != (k.rope is None) or (q.norm and k.norm and q.norm.eps != k.norm.eps):
        return False
    if q.rope is None or k.rope is None:
        return True
    same = q.rope.inv_freq.index == k.rope.inv_freq.index and q.rope.mscale == k.rope.mscale
    return same and q.rope.pairing == k.rope.pairing
