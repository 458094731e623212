"""Turn each op into one closure over compiled kernels, to be called with a step.

Ops run one by one but for matmuls of the same input, which run together on one quantization of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels import precision
from edgeinfer.kernels.jit import attention as attend
from edgeinfer.kernels.jit import matmul as mm
from edgeinfer.kernels.jit import rows
from edgeinfer.kernels.jit.compiler import Kernel
from edgeinfer.kernels.jit.elementary import FUNCTIONS
from edgeinfer.kernels.jit.formats import FLOATS, PACKINGS
from edgeinfer.kernels.jit.memory import Acts, Floats, Pages, address, floats
from edgeinfer.kernels.jit.pool import Pool
from edgeinfer.kernels.jit.step import Step
from edgeinfer.program import ops
from edgeinfer.program.op import Op
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value, WeightRef
from edgeinfer.quant.decode import decode
from edgeinfer.quant.tensor import Tensor

Run: TypeAlias = Callable[[Step], None]

FINE, COARSE = 127.0 * 128.0, 127.0  # the largest codes of activations
ALONE = 1 << 15  # elements of a row kernel that one thread has done before another is awake


@dataclass(slots=True, eq=False)
class Source:
    """What closures are made from; `kept` is memory that addresses point into."""

    program: Program
    tensors: Mapping[str, Tensor]
    values: Mapping[int, Floats]
    pages: Mapping[int, Pages]
    acts: Acts
    scratch: Floats  # (threads, floats of one)
    pool: Pool
    kept: list[Any] = field(default_factory=list)
    vectors: dict[str, Floats] = field(default_factory=dict)

    def at(self, value: Value) -> int:
        """Return the address of a value."""
        return address(self.values[value.id])

    def vector(self, ref: WeightRef) -> Floats:
        """Return a weight as one row of float32, with room behind it."""
        if ref.name not in self.vectors:
            whole = decode(self.tensors[ref.name]).reshape(-1)
            self.vectors[ref.name] = floats(len(whole))
            self.vectors[ref.name][:] = whole
        return self.vectors[ref.name]

    def at_vector(self, ref: WeightRef | None) -> int:
        """Return the address of a weight row, 0 for none."""
        return 0 if ref is None else address(self.vector(ref))

    def over_rows(self, kernel: Kernel, value: Value) -> Callable[..., None]:
        """Return `run(step, *args)` of a row kernel over the rows of a value."""
        compiled, pool, kind, width = kernel.compiled, self.pool, value.rows, value.width

        def run(step: Step, *args: Any) -> None:
            n_rows = step.n_rows[kind]
            go = pool.run_alone if n_rows * width < ALONE else pool.run
            go(compiled, n_rows, *args)

        return run


def plan(program: Program) -> list[tuple[Op, ...]]:
    """Return what runs together, in order: single ops, and all matmuls of one input."""
    first: dict[int, list[Op]] = {}
    planned: list[list[Op]] = []
    for op in program.ops:
        if isinstance(op, ops.Linear) and op.x.id in first:
            first[op.x.id].append(op)
            continue
        planned.append([op])
        if isinstance(op, ops.Linear):
            first[op.x.id] = planned[-1]
    return [tuple(together) for together in planned]


def kernels_of(program: Program, tensors: Mapping[str, Tensor]) -> list[Kernel]:
    """List the kernels a program needs.

    Raises UnsupportedModelError naming an op or a format that has none.
    """
    found: list[Kernel] = []
    for op in program.ops:
        if type(op) not in KERNELS:
            raise UnsupportedModelError(
                f"jit backend: op '{op.NAME}' is not implemented (need one of "
                f"{', '.join(sorted(kind.NAME for kind in KERNELS))})"
            )
        found += KERNELS[type(op)]
        if isinstance(op, ops.Linear):
            found.append(packing(tensors[op.weight.name]).unpack)
    return list(dict.fromkeys(found))


def packing(tensor: Tensor) -> Any:
    """Return the row of PACKINGS of a tensor's format."""
    if tensor.format.name not in PACKINGS:
        raise UnsupportedModelError(
            f"tensor '{tensor.name}': found format {tensor.format.name} "
            f"(need one of {', '.join(PACKINGS)})"
        )
    return PACKINGS[tensor.format.name]


def lower(together: tuple[Op, ...], source: Source) -> Run:
    """Return the closure of ops that run together."""
    op = together[0]
    if isinstance(op, ops.Linear):
        return linears([o for o in together if isinstance(o, ops.Linear)], source)
    return LOWER[type(op)](op, source)


def refuse(what: str) -> UnsupportedModelError:
    """Return the error for a use of an op that is not there."""
    return UnsupportedModelError(f"jit backend: {what} is not implemented")


def embed(op: ops.Embed, source: Source) -> Run:
    if op.ids != "tokens":
        raise refuse(f"embed of {op.ids!r}")
    table, out, by = source.tensors[op.table.name], source.values[op.out.id], np.float32(op.scale)

    def run(step: Step) -> None:
        found = decode(table, step.batch.tokens)
        if by != 1:
            found *= by
        out[: len(found)] = found

    return run


def select(op: ops.SelectRows, source: Source) -> Run:
    x, out = source.values[op.x.id], source.values[op.out.id]

    def run(step: Step) -> None:
        out[: len(step.batch.wanted)] = x[step.batch.wanted]

    return run


def norm(op: ops.RmsNorm, source: Source) -> Run:
    n = op.x.width // op.groups
    step_bytes = 4 * n if op.weight is not None and op.weight.size != n else 0
    go = source.over_rows(rows.rms_norm, op.x)
    at = (source.at(op.x), source.at(op.out), op.groups, n)
    weight = source.at_vector(op.weight)
    return lambda step: go(step, *at, weight, step_bytes, op.eps)


def linears(group: list[ops.Linear], source: Source) -> Run:
    x, n = group[0].x, group[0].x.width
    parts = np.zeros((len(group), mm.PART_NUMBERS), np.int64)
    is_fine, most = precision.policy(source.program), 0.0
    n_groups = 0
    for part, op in zip(parts, group, strict=True):
        if op.scale is not None:
            raise refuse(f"{op.weight.name}: a scale tensor")
        tensor = source.tensors[op.weight.name]
        how = packing(tensor)
        part[: mm.BIAS + 1] = (
            address(tensor.data),
            tensor.row_bytes,
            op.out.width,
            how.unpack.address,
            how.law,
            how.has_min,
            source.at(op.out),
            4 * op.out.width,
            source.at_vector(op.bias),
        )
        source.kept.append(tensor.data)
        n_groups += -(-op.out.width // 16)
        if how.law != FLOATS:
            most = max(most, FINE if is_fine(op.weight.name) else COARSE)
    acts, scratch, pool = source.acts, source.scratch, source.pool
    at_acts = tuple(address(a) for a in (acts.q, acts.d, acts.sums, acts.ds))
    quantize = source.over_rows(rows.quantize, x) if most else None
    at, kind, compiled = source.at(x), x.rows, mm.matmul.compiled
    tail = (at, *at_acts, address(scratch), scratch.strides[0])
    source.kept.append(parts)
    at_parts = address(parts)
    work = n * n_groups * 16

    def run(step: Step) -> None:
        if quantize is not None:
            quantize(step, at, n, most, *at_acts)
        n_rows = step.n_rows[kind]
        go = pool.run_alone if n_rows * work < 4 * ALONE else pool.run
        go(compiled, n_groups, at_parts, n, n_rows, *tail)

    return run


def rope(op: ops.Rope, source: Source) -> Run:
    if op.axis is not None:
        raise refuse("rope with several axes")
    inv_freq = source.program.constants[op.inv_freq.index].values
    x, out = source.values[op.x.id], source.values[op.out.id]
    go = source.over_rows(rows.rope, op.x)
    sizes = (source.at(op.out), op.heads, op.x.width // op.heads, op.inv_freq.length)
    interleaved = int(op.pairing == "interleaved")

    def run(step: Step) -> None:
        cosines, sines = step.turns(op.inv_freq.index, inv_freq, op.mscale)
        n_rows = step.n_rows[op.x.rows]
        out[:n_rows] = x[:n_rows]
        go(step, *sizes, interleaved, address(cosines), address(sines))

    return run


def kv_store(op: ops.KvStore, source: Source) -> Run:
    kv = source.program.kv(op.kv)
    if kv.kind != "paged":
        raise refuse("step-local KV")
    pages, k, v = source.pages[op.kv], source.values[op.k.id], None
    if op.v is not None:
        v = source.values[op.v.id]

    def run(step: Step) -> None:
        n = len(step.slots)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            keys = k[:n].astype(np.float16).reshape(n, kv.n_kv_heads, kv.key_dim)
            # without values of its own, the values are the first dims of the keys
            values = keys[:, :, : kv.value_dim] if v is None else v[:n].astype(np.float16)
        pages.keys[step.pages, :, :, step.slots] = keys
        pages.values[step.pages, :, step.slots] = values.reshape(n, kv.n_kv_heads, kv.value_dim)

    return run


def attention(op: ops.Attention, source: Source) -> Run:
    if op.mask != "causal" or op.window_kind != "past" or op.slopes is not None:
        raise refuse(f"attention with mask {op.mask!r}, window {op.window_kind!r} or slopes")
    kv, pages = source.program.kv(op.kv), source.pages[op.kv]
    group = op.heads // kv.n_kv_heads
    most = attend.tokens_of_span(group)
    sizes = (kv.n_kv_heads, group, kv.key_dim, kv.value_dim)
    at = (address(pages.keys), address(pages.values), source.at(op.q), source.at(op.out))
    cap = np.float32(op.softcap)
    inverse = float(np.float32(1) / cap) if op.softcap > 0 else 0.0
    scratch = source.scratch
    scalars = (op.scale, op.softcap, inverse, op.window, source.at_vector(op.sinks))
    tail = (*scalars, address(scratch), scratch.strides[0])
    compiled, pool = attend.attention.compiled, source.pool

    def run(step: Step) -> None:
        spans = step.spans(most)
        n_pieces = len(spans) * kv.n_kv_heads
        pool.run(compiled, n_pieces, address(spans), *sizes, *at, *tail)

    return run


def act(op: ops.Act, source: Source) -> Run:
    go = source.over_rows(rows.activate, op.x)
    args = (FUNCTIONS.index(op.fn), source.at(op.x), 0, source.at(op.out), op.x.width)
    return lambda step: go(step, *args)


def gated(op: ops.Gated, source: Source) -> Run:
    if op.fn not in FUNCTIONS or op.g.width != op.u.width:
        raise refuse(f"gated by {op.fn}, {op.g.width} to {op.u.width} columns,")
    go = source.over_rows(rows.activate, op.g)
    at = (source.at(op.g), source.at(op.u), source.at(op.out), op.g.width)
    return lambda step: go(step, FUNCTIONS.index(op.fn), *at)


def scale(op: ops.Scale, source: Source) -> Run:
    if op.temp is not None:
        raise refuse("scale by position")
    inverse = float(np.float32(1) / np.float32(op.cap)) if op.cap > 0 else 0.0
    go = source.over_rows(rows.scale, op.x)
    args = (source.at(op.x), op.by, op.cap, inverse, source.at(op.out), op.x.width)
    return lambda step: go(step, *args)


def add(op: ops.Add, source: Source) -> Run:
    a, out, alpha = source.values[op.a.id], source.values[op.out.id], np.float32(op.alpha)
    b = source.values[op.b.id] if isinstance(op.b, Value) else source.vector(op.b)
    is_row = not isinstance(op.b, Value)

    def run(step: Step) -> None:
        n = step.n_rows[op.a.rows]
        other = b if is_row else b[:n]
        np.add(a[:n], other if alpha == 1 else other * alpha, out=out[:n])

    return run


def multiply(op: ops.Mul, source: Source) -> Run:
    a, out = source.values[op.a.id], source.values[op.out.id]
    b = source.values[op.b.id] if isinstance(op.b, Value) else source.vector(op.b)
    is_row = not isinstance(op.b, Value)

    def run(step: Step) -> None:
        n = step.n_rows[op.a.rows]
        np.multiply(a[:n], b if is_row else b[:n], out=out[:n])

    return run


def split(op: ops.Split, source: Source) -> Run:
    x, outs = source.values[op.x.id], [source.values[out.id] for out in op.outs]
    ends = np.cumsum(op.sizes).tolist()
    pieces = list(zip(outs, [0, *ends], ends, strict=False))

    def run(step: Step) -> None:
        n = step.n_rows[op.x.rows]
        grouped = x[:n].reshape(n, op.groups, -1)
        for out, start, end in pieces:
            out[:n] = grouped[:, :, start:end].reshape(n, -1)

    return run


LOWER: dict[type[Op], Callable[[Any, Source], Run]] = {
    ops.Embed: embed,
    ops.SelectRows: select,
    ops.RmsNorm: norm,
    ops.Rope: rope,
    ops.KvStore: kv_store,
    ops.Attention: attention,
    ops.Act: act,
    ops.Gated: gated,
    ops.Add: add,
    ops.Mul: multiply,
    ops.Scale: scale,
    ops.Split: split,
}

# The kernels an op needs, besides those that unpack its weights; empty where NumPy does it.
KERNELS: dict[type[Op], tuple[Kernel, ...]] = dict.fromkeys(LOWER, ()) | {
    ops.Linear: (rows.quantize, mm.matmul),
    ops.RmsNorm: (rows.rms_norm,),
    ops.Rope: (rows.rope,),
    ops.Attention: (attend.attention,),
    ops.Act: (rows.activate,),
    ops.Gated: (rows.activate,),
    ops.Scale: (rows.scale,),
}


def reads_and_writes(together: Iterable[Op]) -> tuple[list[Value], list[Value]]:
    """Return the values that ops which run together read and write."""
    read = [value for op in together for value in op.reads()]
    return read, [value for op in together for value in op.writes()]
