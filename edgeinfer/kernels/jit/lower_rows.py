"""Make closures of the ops that treat each row alone, matmuls excepted."""

import numpy as np

from edgeinfer.kernels.jit import rows
from edgeinfer.kernels.jit.source import Run, Source, refuse
from edgeinfer.kernels.jit.step import Step
from edgeinfer.kernels.lookups import looked_up
from edgeinfer.program import ops
from edgeinfer.program.ops_rowwise import FUNCTIONS
from edgeinfer.program.values import Rows, Value
from edgeinfer.quant.decode import decode


def embed(op: ops.Embed, source: Source) -> Run:
    table, out, by = source.tensors[op.table.name], source.values[op.out.id], np.float32(op.scale)

    def run(step: Step) -> None:
        found = decode(table, looked_up(op, step.batch))
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


def layer_norm(op: ops.LayerNorm, source: Source) -> Run:
    if any(ref is not None and ref.size != op.x.width for ref in (op.weight, op.bias)):
        raise refuse("layer_norm of groups that share a weight")
    go = source.over_rows(rows.layer_norm, op.x)
    sizes = (source.at(op.x), source.at(op.out), op.groups, op.x.width // op.groups)
    vectors = (source.at_vector(op.weight), source.at_vector(op.bias))
    return lambda step: go(step, *sizes, *vectors, op.eps)


def l2_norm(op: ops.L2Norm, source: Source) -> Run:
    """A root mean square of n elements is n^-0.5 of their length."""
    norm, scale = (source.over_rows(kernel, op.x) for kernel in (rows.rms_norm, rows.scale))
    n, out = op.x.width // op.groups, source.at(op.out)

    def run(step: Step) -> None:
        norm(step, source.at(op.x), out, op.groups, n, 0, 0, op.eps / n)
        scale(step, out, n**-0.5, 0.0, 0.0, out, op.out.width)

    return run


def softmax(op: ops.Softmax, source: Source) -> Run:
    go = source.over_rows(rows.softmax, op.x)
    return lambda step: go(step, source.at(op.x), source.at(op.out), op.x.width)


def pool(op: ops.Pool, source: Source) -> Run:
    x, out, end = source.values[op.x.id], source.values[op.out.id], op.kind == "last"

    def run(step: Step) -> None:
        for i, (start, stop) in enumerate(step.runs):
            if op.kind == "mean":
                total = np.add.accumulate(x[start:stop], axis=0)[-1]
                out[i] = total * (np.float32(1) / np.float32(stop - start))
            else:
                out[i] = x[stop - 1 if end else start]

    return run


def act(op: ops.Act, source: Source) -> Run:
    go = source.over_rows(rows.activate, op.x)
    args = (FUNCTIONS.index(op.fn), source.at(op.x), 0, source.at(op.out), op.x.width)
    return lambda step: go(step, *args)


def gated(op: ops.Gated, source: Source) -> Run:
    if op.g.width != op.u.width:
        raise refuse(f"gated by {op.fn}, {op.g.width} to {op.u.width} columns,")
    at = (source.at(op.g), source.at(op.u))
    to = (source.at(op.out), op.g.width)
    if op.fn == "swiglu_oai":
        clamp = source.over_rows(rows.clamped_gate, op.g)
        return lambda step: clamp(step, *at, op.alpha, op.limit, *to)
    go, fn = source.over_rows(rows.activate, op.g), FUNCTIONS.index(op.fn)
    return lambda step: go(step, fn, *at, *to)


def scale(op: ops.Scale, source: Source) -> Run:
    if op.temp is not None:
        return _scale_by_position(op, *op.temp, source)
    inverse = float(np.float32(1) / np.float32(op.cap)) if op.cap > 0 else 0.0
    go = source.over_rows(rows.scale, op.x)
    args = (source.at(op.x), op.by, op.cap, inverse, source.at(op.out), op.x.width)
    return lambda step: go(step, *args)


def _scale_by_position(op: ops.Scale, beta: float, length: int, source: Source) -> Run:
    if op.cap > 0 or op.x.rows is not Rows.TOKENS:
        raise refuse("scale by position, capped or of other rows than tokens,")
    x, out, by = source.values[op.x.id], source.values[op.out.id], np.float32(op.by)

    def run(step: Step) -> None:
        n = len(step.batch.positions)
        grown = 1 + beta * np.log1p(step.batch.positions // length)
        np.multiply(x[:n], by * grown.astype(np.float32)[:, None], out=out[:n])

    return run


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
