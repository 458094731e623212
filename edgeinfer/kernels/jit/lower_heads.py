"""Make closures of the ops that work on heads: rotation, the KV append, attention."""

import numpy as np

from edgeinfer.kernels.jit import attention as attend
from edgeinfer.kernels.jit import rows
from edgeinfer.kernels.jit.memory import address
from edgeinfer.kernels.jit.source import Run, Source, refuse
from edgeinfer.kernels.jit.step import Step
from edgeinfer.program import ops

UNLIMITED = 1 << 31  # positions: more than any sequence has


def rope(op: ops.Rope, source: Source) -> Run:
    if op.axis is not None:
        raise refuse("rope with several axes")
    inv_freq = source.program.constants[op.inv_freq.index].values
    go = source.over_rows(rows.rope, op.x)
    sizes = (
        source.at(op.x),
        source.at(op.out),
        op.heads,
        op.x.width // op.heads,
        op.inv_freq.length,
    )
    interleaved = int(op.pairing == "interleaved")

    def run(step: Step) -> None:
        go(
            step,
            *sizes,
            interleaved,
            *step.turns(op.inv_freq.index, inv_freq, op.mscale, op.x.rows),
        )

    return run


def kv_store(op: ops.KvStore, source: Source) -> Run:
    """Append; without values of their own, the values are the first dims of the keys."""
    kv, pages, scratch = source.program.kv(op.kv), source.pages[op.kv], source.scratch
    v, stride = (op.k, kv.key_dim) if op.v is None else (op.v, kv.value_dim)
    sizes = (kv.n_kv_heads, kv.key_dim, kv.value_dim, source.at(op.k), source.at(v), 4 * stride)
    at = (address(pages.keys), address(pages.values), address(scratch), scratch.strides[0])
    go, size = source.over_rows(attend.kv_store, op.k), pages.keys.itemsize
    return lambda step: go(step, size, *sizes, step.at_slots, *at)


def attention(op: ops.Attention, source: Source) -> Run:
    kv, pages = source.program.kv(op.kv), source.pages[op.kv]
    group = op.heads // kv.n_kv_heads
    most = attend.tokens_of_span(group)
    sizes = (kv.n_kv_heads, group, kv.key_dim, kv.value_dim)
    at = (address(pages.keys), address(pages.values), source.at(op.q), source.at(op.out))
    cap = np.float32(op.softcap)
    inverse = float(np.float32(1) / cap) if op.softcap > 0 else 0.0
    scratch = source.scratch
    reach = tuple(UNLIMITED if n is None else n for n in op.reach)
    per_head = (source.at_vector(op.sinks), source.at_constant(op.slopes))
    scalars = (op.scale, op.softcap, inverse, *reach)
    tail = (*scalars, *per_head, address(scratch), scratch.strides[0])
    compiled, pool, size = attend.attention.compiled, source.pool, pages.keys.itemsize

    def run(step: Step) -> None:
        spans = step.spans(most, op.q.rows)
        n_pieces = len(spans) * kv.n_kv_heads
        pool.run(compiled, n_pieces, size, address(spans), *sizes, *at, *tail)

    return run
