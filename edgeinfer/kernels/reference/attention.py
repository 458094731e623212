"""Compute attention over paged keys and values, one sequence and one KV head at a time."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.reference.functions import softcap
from edgeinfer.kernels.reference.step import KvPages, Run

Floats = npt.NDArray[np.float32]


TILE = 128  # queries at a time: half of the causal rectangle is then never computed


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The scalars and per-head vectors of an attention op."""

    n_kv_heads: int
    group: int  # query heads of one KV head
    scale: float
    softcap: float
    behind: int | None  # how many positions a token sees behind its own; None: all
    ahead: int | None
    sinks: Floats | None  # (n_kv_heads, group)
    slopes: Floats | None  # (n_kv_heads, group)


def attend(q: Floats, run: Run, pages: KvPages, terms: Terms) -> Floats:
    """Return the heads' outputs `(n, heads * value_dim)` of a run's queries `(n, heads * key_dim)`.

    Positions no query of a tile can see, ahead of it or outside its window, are not touched.
    """
    n = len(q)
    heads = q.reshape(n, terms.n_kv_heads, terms.group, -1)
    out = np.empty((n, terms.n_kv_heads, terms.group, pages.values.shape[2]), np.float32)
    skipped = _first(run.first_pos, terms)
    seen = run.slots[skipped:]
    for j in range(terms.n_kv_heads):
        keys, values = pages.keys[seen, j], pages.values[seen, j]
        for start in range(0, n, TILE):
            tile = heads[start : start + TILE, j]
            pos = run.first_pos + np.arange(start, start + len(tile))
            near = np.arange(_first(int(pos[0]), terms), _end(int(pos[-1]), len(run.slots), terms))
            span = slice(int(near[0]) - skipped, int(near[-1]) + 1 - skipped)
            distance = pos[:, None] - near[None]
            out[start : start + TILE, j] = _tile(tile, keys[span], values[span], distance, terms, j)
    return out.reshape(n, -1)


def _first(pos: int, terms: Terms) -> int:
    return 0 if terms.behind is None else max(0, pos - terms.behind)


def _end(pos: int, n_positions: int, terms: Terms) -> int:
    return n_positions if terms.ahead is None else min(n_positions, pos + terms.ahead + 1)


def _tile(
    q: Floats,
    keys: Floats,
    values: Floats,
    distance: npt.NDArray[np.int64],
    terms: Terms,
    j: int,
) -> Floats:
    n, group, _ = q.shape
    scaled: Floats = q.reshape(n * group, -1) * np.float32(terms.scale)
    scores: Floats = np.matmul(scaled, keys.T)
    scores = scores.reshape(n, group, -1)
    if terms.softcap > 0:
        scores = softcap(scores, terms.softcap)
    if terms.slopes is not None:
        scores -= terms.slopes[j][:, None] * np.abs(distance)[:, None].astype(np.float32)
    hidden = np.zeros(distance.shape, bool)
    if terms.ahead is not None:
        hidden |= distance < -terms.ahead
    if terms.behind is not None:
        hidden |= distance > terms.behind
    scores += np.where(hidden, np.float32(-np.inf), np.float32(0))[:, None]
    top = scores.max(axis=2, keepdims=True)
    if terms.sinks is not None:
        top = np.maximum(top, terms.sinks[j][None, :, None])
    scores -= top
    e = np.exp(scores, out=scores)
    total = e.sum(axis=2, keepdims=True)
    if terms.sinks is not None:
        total += np.exp(terms.sinks[j][None, :, None] - top)
    mixed: Floats = (e.reshape(n * group, -1) @ values).reshape(n, group, -1) / total
    return mixed
