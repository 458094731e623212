"""Turn the ops that go along a sequence, row by row, into closures."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.reference import functions as f
from edgeinfer.kernels.reference import recurrence
from edgeinfer.kernels.reference.source import Source
from edgeinfer.kernels.reference.step import Kernel, Run, Step
from edgeinfer.program import ops
from edgeinfer.program.states import Conv, Delta, Ssm

Floats = npt.NDArray[np.float32]


def _recurrent(
    op: ops.Conv1d | ops.SsmScan | ops.DeltaNet,
    snapshots: Floats,
    turn_of: Callable[[Step, slice], recurrence.Turn],
) -> Kernel:
    """Return the closure of an op that goes from row to row of each sequence."""

    def turned(step: Step, run: Run) -> Floats:
        return recurrence.recur(run, snapshots, turn_of(step, slice(run.start, run.end)))

    def run(step: Step) -> None:
        step.values[op.out.id] = np.concatenate([turned(step, run) for run in step.runs])

    return run


def convolution(op: ops.Conv1d, source: Source) -> Kernel:
    weight, bias = source.weights.whole(op.weight), source.weights.flat(op.bias)
    if op.mask == "centered":
        return _centered(op, weight, bias)

    def turn_of(step: Step, rows: slice) -> recurrence.Turn:
        return recurrence.convolve(step.values[op.x.id][rows], weight, bias)

    return _recurrent(op, source.snapshots[Conv, op.conv], turn_of)


def _centered(op: ops.Conv1d, weight: Floats, bias: Floats | None) -> Kernel:
    """Return the closure of a convolution over both sides of each row, in its sequence."""

    def run(step: Step) -> None:
        x = step.values[op.x.id]
        parts = [recurrence.convolve_centered(x[r.start : r.end], weight) for r in step.runs]
        y = np.concatenate(parts)
        step.values[op.out.id] = y if bias is None else y + bias

    return run


def scan(op: ops.SsmScan, source: Source) -> Kernel:
    a, d, dt_bias = (source.weights.whole(ref).ravel() for ref in (op.a, op.d, op.dt_bias))

    def turn_of(step: Step, rows: slice) -> recurrence.Turn:
        x = f.in_groups(step.values[op.x.id][rows], op.heads)
        b, c = (f.in_groups(step.values[value.id][rows], op.groups) for value in (op.b, op.c))
        return recurrence.scan(x, b, c, step.values[op.dt.id][rows], a, d, dt_bias)

    return _recurrent(op, source.snapshots[Ssm, op.ssm], turn_of)


def delta_rule(op: ops.DeltaNet, source: Source) -> Kernel:
    heads = np.arange(op.v_heads)
    ratio = op.v_heads // op.k_heads
    of_key = heads % op.k_heads if op.map == "tiled" else heads // ratio

    def turn_of(step: Step, rows: slice) -> recurrence.Turn:
        q, k = (f.in_groups(step.values[value.id][rows], op.k_heads) for value in (op.q, op.k))
        v = f.in_groups(step.values[op.v.id][rows], op.v_heads)
        g, beta = (step.values[value.id][rows] for value in (op.g, op.beta))
        return recurrence.apply_delta(q[:, of_key], k[:, of_key], v, g, beta)

    return _recurrent(op, source.snapshots[Delta, op.delta], turn_of)
