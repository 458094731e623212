"""Keys and values of one step lie where those of an earlier layer did, once nobody reads them."""

from edgeinfer.program.kv_places import kv_places
from edgeinfer.program.op import Op
from edgeinfer.program.ops import Attention, KvStore
from edgeinfer.program.states import Kv, KvKind
from edgeinfer.program.values import Rows, Value

X = Value(0, 16, Rows.TOKENS)


def places(steps: str, kind: KvKind = "step", *, odd: int = -1) -> list[int]:
    """Return the places of KVs 0, 1, .. for steps like "s0 a0": stored, attended to."""
    ops: list[Op] = []
    for step in steps.split():
        id = int(step[1])
        ops.append(KvStore(X, X, id) if step[0] == "s" else Attention(X, X, id, 2, 1.0))
    n = 1 + max(int(step[1]) for step in steps.split())
    kvs = [Kv(id, 4 if id == odd else 2, 8, 8, kind=kind) for id in range(n)]
    return [kv_places(ops, kvs)[id] for id in range(n)]


def test_layers_of_one_step_share_one_place() -> None:
    assert places("s0 a0 s1 a1 s2 a2") == [0, 0, 0]


def test_what_is_still_read_keeps_its_place() -> None:
    assert places("s0 a0 s1 a1 a0 s2 a2 s3 a3 a2") == [0, 1, 0, 1]


def test_other_sizes_lie_elsewhere() -> None:
    assert places("s0 a0 s1 a1 s2 a2", odd=1) == [0, 1, 0]


def test_paged_ones_lie_alone() -> None:
    assert places("s0 a0 s1 a1", "paged") == [0, 1]
