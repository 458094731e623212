"""Choose experts: scores, groups, the best k, and their weights."""

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.reference.functions import in_groups, sigmoid, softmax, softplus
from edgeinfer.program.ops import Route

Floats = npt.NDArray[np.float32]


def route(
    op: Route, logits: Floats, bias: Floats | None, scale: Floats | None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the ids and weights of the k best experts, `(n, k)` each, best first."""
    p = _score(op, logits)
    choice = p if bias is None else p + bias
    if op.groups > 1:
        choice = _keep_best_groups(op, choice)
    ids = np.argsort(-choice, axis=1, kind="stable")[:, : op.ids.width]
    w = np.take_along_axis(p, ids, axis=1)
    if op.score == "softmax_topk":
        w = softmax(w)
    if op.norm:
        total = w.sum(axis=1, keepdims=True) + np.float32(op.norm_eps)
        w = w / np.maximum(total, np.float32(op.norm_min))
    w = w * np.float32(op.by)
    if scale is not None:
        w = w * scale[ids]
    return ids, w


def _score(op: Route, logits: Floats) -> Floats:
    if op.score == "softmax":
        return softmax(logits)
    if op.score == "sigmoid":
        return sigmoid(logits)
    if op.score == "sqrt_softplus":
        return np.sqrt(softplus(logits))
    return logits


def _keep_best_groups(op: Route, choice: Floats) -> Floats:
    grouped = in_groups(choice, op.groups)
    n_summed = 1 if op.group_score == "max" else 2
    score = np.sort(grouped, axis=2)[:, :, -n_summed:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, : op.groups_used]
    kept = np.full_like(grouped, -np.inf)
    rows = np.arange(len(grouped))[:, None]
    kept[rows, best] = grouped[rows, best]
    return kept.reshape(choice.shape)
