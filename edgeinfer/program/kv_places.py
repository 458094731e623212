"""Find which keys and values can lie in the same memory: those of one step, layer after layer."""

from collections.abc import Mapping, Sequence

from edgeinfer.program.op import Op
from edgeinfer.program.ops import Attention, KvStore
from edgeinfer.program.states import Kv


def kv_places(ops: Sequence[Op], kvs: Sequence[Kv]) -> Mapping[int, int]:
    """Map each KV's id to that of the KV in whose memory it lies, its own or an earlier one's.

    A KV of kind `step` is dead after the last attention that reads it; the next one of its sizes
    lies where it did. A paged KV lies alone.
    """
    known = {kv.id: kv for kv in kvs}
    ends = {op.kv: at for at, op in enumerate(ops) if isinstance(op, Attention)}
    places = {kv.id: kv.id for kv in kvs}
    free_from: dict[tuple[object, ...], dict[int, int]] = {}
    for at, op in enumerate(ops):
        if not isinstance(op, KvStore) or known[op.kv].kind == "paged":
            continue
        kv = known[op.kv]
        sizes = (kv.n_kv_heads, kv.key_dim, kv.value_dim, kv.v_is_prefix)
        free = free_from.setdefault(sizes, {})
        place = next((id for id, start in free.items() if start < at), kv.id)
        free[place] = ends.get(kv.id, at)
        places[kv.id] = place
    return places
