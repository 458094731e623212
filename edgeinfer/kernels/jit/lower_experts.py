"""Make closures of the choice of experts and of the sum of their answers."""

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.jit import rows
from edgeinfer.kernels.jit.choice import Choice
from edgeinfer.kernels.jit.memory import Floats, address, floats
from edgeinfer.kernels.jit.source import Run, Source
from edgeinfer.kernels.jit.step import Step
from edgeinfer.program import ops
from edgeinfer.program.ops_rowwise import FUNCTIONS


def route(op: ops.Route, source: Source) -> Run:
    """Score, choose and weigh as csrc/run_route.c does, in its order."""
    choice = source.choices[op.ids.id] = Choice(op.logits.width, op.ids.width)
    scores = floats(*source.values[op.logits.id].shape)
    source.kept.append(scores)
    score = _score(op, source, scores)
    bias = None if op.bias is None else source.vector(op.bias)
    scale = None if op.scale is None else source.vector(op.scale)
    out = source.values[op.w.id]
    soften = source.over_rows(rows.softmax, op.w)
    at = source.at(op.w)

    def run(step: Step) -> None:
        n = step.n_rows[op.logits.rows]
        score(step)
        p, w = scores[:n], out[:n]
        with np.errstate(all="ignore"):
            ids = _choose(op, p if bias is None else p + bias)
            choice.set(ids)
            w[:] = np.take_along_axis(p, ids, axis=1)
            if op.score == "softmax_topk":
                soften(step, at, at, op.w.width)
            if op.norm:
                w /= _total(op, w)[:, None]
            w *= np.float32(op.by)
            if scale is not None:
                w *= scale[ids]

    return run


def combine(op: ops.Combine, source: Source) -> Run:
    """Sum the slots in rank order."""
    go = source.over_rows(rows.combine, op.y)
    args = (source.at(op.y), source.at(op.w), op.w.width, source.at(op.out), op.out.width)
    return lambda step: go(step, *args)


def _score(op: ops.Route, source: Source, scores: Floats) -> Run:
    x, n = source.at(op.logits), op.logits.width
    to = address(scores)
    if op.score == "softmax":
        soften = source.over_rows(rows.softmax, op.logits)
        return lambda step: soften(step, x, to, n)
    if op.score == "softmax_topk":
        logits = source.values[op.logits.id]

        def copy(step: Step) -> None:
            scores[: step.n_rows[op.logits.rows]] = logits[: step.n_rows[op.logits.rows]]

        return copy
    is_sigmoid = op.score == "sigmoid"
    fn = FUNCTIONS.index("sigmoid" if is_sigmoid else "softplus")
    activate = source.over_rows(rows.activate, op.logits)

    def run(step: Step) -> None:
        activate(step, fn, x, 0, to, n)
        if not is_sigmoid:
            p = scores[: step.n_rows[op.logits.rows]]
            with np.errstate(all="ignore"):
                np.sqrt(p, out=p)

    return run


def _choose(op: ops.Route, choice: Floats) -> npt.NDArray[np.int64]:
    """Return the ids `(rows, k)` of the best, ties to the lower id; NaN is worse than all."""
    keys = np.where(np.isnan(choice), np.float32(-np.inf), choice)
    out = np.zeros(keys.shape, bool)
    if op.groups > 1:
        grouped = np.sort(keys.reshape(len(keys), op.groups, -1), axis=2)
        total = grouped[:, :, -1]
        if op.group_score == "top2":
            total = total + grouped[:, :, -2]
        total = np.where(np.isnan(total), np.float32(-np.inf), total)
        best = np.argsort(-total, axis=1, kind="stable")[:, : op.groups_used]
        dropped = np.ones(total.shape, bool)
        np.put_along_axis(dropped, best, False, axis=1)
        out = np.repeat(dropped, keys.shape[1] // op.groups, axis=1)
    order: npt.NDArray[np.int64] = np.lexsort((-keys, out), axis=1)
    return order[:, : op.ids.width]


def _total(op: ops.Route, w: Floats) -> Floats:
    total = w[:, 0].copy()
    for j in range(1, w.shape[1]):
        total += w[:, j]
    total += np.float32(op.norm_eps)
    least = np.float32(op.norm_min)
    return np.where(total < least, least, total)
