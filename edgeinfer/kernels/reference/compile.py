"""Turn each op into one closure over decoded weights, to be called with a step."""

from functools import singledispatch

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.kernels.lookups import looked_up
from edgeinfer.kernels.reference import compile_recurrence as recurrent
from edgeinfer.kernels.reference import functions as f
from edgeinfer.kernels.reference.attention import Terms, attend
from edgeinfer.kernels.reference.routing import route
from edgeinfer.kernels.reference.source import Source
from edgeinfer.kernels.reference.step import Kernel, Step
from edgeinfer.program import ops
from edgeinfer.program.values import Value, WeightRef

Floats = npt.NDArray[np.float32]


@singledispatch
def compile_op(op: ops.Op, source: Source) -> Kernel:
    """Return the closure that runs one op. Raises UnsupportedModelError for an op it lacks."""
    raise UnsupportedModelError(
        f"reference backend: op '{op.NAME}' (architecture '{source.program.arch}') is not built yet"
    )


@compile_op.register
def _(op: ops.Embed, source: Source) -> Kernel:
    scale, n_rows = np.float32(op.scale), op.table.shape[0]

    def run(step: Step) -> None:
        ids = looked_up(op, step.batch)
        if ids.max() >= n_rows:
            found = int(ids.max())
            raise InvalidParameterError(f"{op.ids}: found {found} (need 0 to {n_rows - 1})")
        step.values[op.out.id] = source.weights.rows(op.table, ids) * scale

    return run


@compile_op.register
def _(op: ops.SelectRows, source: Source) -> Kernel:
    def run(step: Step) -> None:
        step.values[op.out.id] = step.values[op.x.id][step.batch.wanted]

    return run


@compile_op.register
def _(op: ops.Pool, source: Source) -> Kernel:
    pooled = f.POOLINGS[op.kind]

    def run(step: Step) -> None:
        x = step.values[op.x.id]
        step.values[op.out.id] = np.stack([pooled(x[r.start : r.end]) for r in step.runs])

    return run


@compile_op.register
def _(op: ops.RmsNorm, source: Source) -> Kernel:
    weight = source.weights.flat(op.weight)

    def run(step: Step) -> None:
        step.values[op.out.id] = f.rms_norm(step.values[op.x.id], weight, op.eps, op.groups)

    return run


@compile_op.register
def _(op: ops.LayerNorm, source: Source) -> Kernel:
    weight, bias = source.weights.flat(op.weight), source.weights.flat(op.bias)

    def run(step: Step) -> None:
        x = step.values[op.x.id]
        step.values[op.out.id] = f.layer_norm(x, weight, bias, op.eps, op.groups)

    return run


@compile_op.register
def _(op: ops.L2Norm, source: Source) -> Kernel:
    def run(step: Step) -> None:
        step.values[op.out.id] = f.l2_norm(step.values[op.x.id], op.eps, op.groups)

    return run


@compile_op.register
def _(op: ops.Linear, source: Source) -> Kernel:
    weight = source.weights.whole(op.weight)
    bias, scale = source.weights.flat(op.bias), source.weights.flat(op.scale)
    sums = source.observed.get(op.weight.name)

    def run(step: Step) -> None:
        y = step.values[op.x.id] @ weight.T
        if sums is not None:
            sums.add(0, step.values[op.x.id])
        if scale is not None:
            y *= scale
        if bias is not None:
            y += bias
        step.values[op.out.id] = y

    return run


@compile_op.register
def _(op: ops.HeadLinear, source: Source) -> Kernel:
    weight = source.weights.whole(op.weight)  # (heads, out, in)

    def run(step: Step) -> None:
        x = f.in_groups(step.values[op.x.id], len(weight))
        y = np.matmul(weight[None], x[..., None])[..., 0]
        step.values[op.out.id] = y.reshape(len(x), -1)

    return run


@compile_op.register
def _(op: ops.ExpertLinear, source: Source) -> Kernel:
    weight = source.weights.whole(op.weight)  # (experts, out, in)
    bias = None if op.bias is None else source.weights.whole(op.bias)
    scale = source.weights.flat(op.scale)
    sums = source.observed.get(op.weight.name)

    def run(step: Step) -> None:
        x, ids = step.values[op.x.id], step.values[op.ids.id]
        k = ids.shape[1]
        each = x.reshape(len(x), -1, weight.shape[2])  # one x for all slots, or one a slot
        each = np.broadcast_to(each, (len(x), k, weight.shape[2]))
        y = np.empty((len(x), k, weight.shape[1]), np.float32)
        for expert in np.unique(ids):
            chosen = ids == expert
            part = each[chosen] @ weight[expert].T
            if sums is not None:
                sums.add(int(expert), each[chosen])
            if scale is not None:
                part *= scale[expert]
            if bias is not None:
                part += bias[expert]
            y[chosen] = part
        step.values[op.out.id] = y.reshape(len(x), -1)

    return run


@compile_op.register
def _(op: ops.Combine, source: Source) -> Kernel:
    def run(step: Step) -> None:
        w = step.values[op.w.id]
        y = f.in_groups(step.values[op.y.id], w.shape[1])
        total = y[:, 0] * w[:, :1]
        for j in range(1, w.shape[1]):
            total = total + y[:, j] * w[:, j : j + 1]
        step.values[op.out.id] = total

    return run


@compile_op.register
def _(op: ops.Split, source: Source) -> Kernel:
    cuts = np.cumsum(op.sizes)[:-1]

    def run(step: Step) -> None:
        x = f.in_groups(step.values[op.x.id], op.groups)
        for out, part in zip(op.outs, np.split(x, cuts, axis=2), strict=True):
            step.values[out.id] = part.reshape(len(x), -1)

    return run


@compile_op.register
def _(op: ops.Concat, source: Source) -> Kernel:
    def run(step: Step) -> None:
        parts = []
        for x, repeated in zip(op.xs, op.repeat, strict=True):
            part = f.in_groups(step.values[x.id], 1 if repeated else op.groups)
            parts.append(np.broadcast_to(part, (len(part), op.groups, part.shape[2])))
        step.values[op.out.id] = np.concatenate(parts, axis=2).reshape(len(parts[0]), -1)

    return run


@compile_op.register
def _(op: ops.Rope, source: Source) -> Kernel:
    if op.axis is not None:
        raise UnsupportedModelError("reference backend: op 'rope' over several axes is not built")
    inv_freq = source.program.constant(op.inv_freq).astype(np.float64)
    key = (op.inv_freq.index, op.mscale, op.x.rows)

    def run(step: Step) -> None:
        if key not in step.angles:
            angles = step.batch.positions[step.tokens_of(op.x.rows), None] * inv_freq
            cos, sin = np.cos(angles) * op.mscale, np.sin(angles) * op.mscale
            step.angles[key] = (cos.astype(np.float32), sin.astype(np.float32))
        cos32, sin32 = step.angles[key]
        x = step.values[op.x.id]
        step.values[op.out.id] = f.rope(x, cos32, sin32, op.heads, op.pairing)

    return run


@compile_op.register
def _(op: ops.KvStore, source: Source) -> Kernel:
    pages = source.pages[op.kv]
    v = op.v

    def run(step: Step) -> None:
        k = step.values[op.k.id]
        pages.keys[step.slots] = k.reshape(len(k), *pages.keys.shape[1:])
        if v is not None:
            pages.values[step.slots] = step.values[v.id].reshape(len(k), *pages.values.shape[1:])

    return run


@compile_op.register
def _(op: ops.Attention, source: Source) -> Kernel:
    n_kv_heads = source.program.kv(op.kv).n_kv_heads
    sinks = source.weights.flat(op.sinks)
    slopes = None if op.slopes is None else source.program.constant(op.slopes)
    terms = Terms(
        n_kv_heads=n_kv_heads,
        group=op.heads // n_kv_heads,
        scale=op.scale,
        softcap=op.softcap,
        behind=op.reach[0],
        ahead=op.reach[1],
        sinks=None if sinks is None else sinks.reshape(n_kv_heads, -1),
        slopes=None if slopes is None else slopes.reshape(n_kv_heads, -1),
    )
    pages = source.pages[op.kv]

    def run(step: Step) -> None:
        tokens = step.tokens_of(op.q.rows)
        q = np.zeros((len(step.batch.tokens), op.q.width), np.float32)
        q[tokens] = step.values[op.q.id]
        parts = [attend(q[r.start : r.end], r, pages, terms) for r in step.runs]
        step.values[op.out.id] = np.concatenate(parts)[tokens]

    return run


@compile_op.register
def _(op: ops.Act, source: Source) -> Kernel:
    fn = f.ACTIVATIONS[op.fn]

    def run(step: Step) -> None:
        step.values[op.out.id] = fn(step.values[op.x.id])

    return run


@compile_op.register
def _(op: ops.Gated, source: Source) -> Kernel:
    def run(step: Step) -> None:
        g, u = step.values[op.g.id], step.values[op.u.id]
        if g.shape != u.shape:
            g = np.repeat(g, u.shape[1] // g.shape[1], axis=1)
        if op.fn == "swiglu_oai":
            step.values[op.out.id] = f.swiglu_oai(g, u, op.alpha, op.limit)
        else:
            step.values[op.out.id] = f.ACTIVATIONS[op.fn](g) * u

    return run


def _operand(operand: Value | WeightRef, source: Source, step: Step) -> Floats:
    if isinstance(operand, Value):
        return step.values[operand.id]
    return source.weights.whole(operand).reshape(-1)


@compile_op.register
def _(op: ops.Add, source: Source) -> Kernel:
    alpha = np.float32(op.alpha)

    def run(step: Step) -> None:
        step.values[op.out.id] = step.values[op.a.id] + alpha * _operand(op.b, source, step)

    return run


@compile_op.register
def _(op: ops.Mul, source: Source) -> Kernel:
    def run(step: Step) -> None:
        step.values[op.out.id] = step.values[op.a.id] * _operand(op.b, source, step)

    return run


@compile_op.register
def _(op: ops.Scale, source: Source) -> Kernel:
    def run(step: Step) -> None:
        y = step.values[op.x.id] * np.float32(op.by)
        if op.temp is not None:
            beta, length = op.temp
            grown = 1 + beta * np.log1p(np.floor(step.batch.positions / length))
            y = y * grown.astype(np.float32)[:, None]
        step.values[op.out.id] = f.softcap(y, op.cap) if op.cap > 0 else y

    return run


@compile_op.register
def _(op: ops.Softmax, source: Source) -> Kernel:
    def run(step: Step) -> None:
        step.values[op.out.id] = f.softmax(step.values[op.x.id])

    return run


@compile_op.register
def _(op: ops.Route, source: Source) -> Kernel:
    bias, scale = source.weights.flat(op.bias), source.weights.flat(op.scale)

    def run(step: Step) -> None:
        ids, w = route(op, step.values[op.logits.id], bias, scale)
        step.values[op.ids.id], step.values[op.w.id] = ids, w

    return run


compile_op.register(recurrent.convolution)
compile_op.register(recurrent.scan)
compile_op.register(recurrent.delta_rule)
