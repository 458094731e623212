"""Run recurrences in NumPy, a sequence and a position at a time, from one snapshot to others."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.reference import functions as f
from edgeinfer.kernels.reference.step import Run
from edgeinfer.program.states import Conv, Delta, Recurrent, Ssm

Floats = npt.NDArray[np.float32]
# From the state before row t of the run to its output, the state changed in place.
Turn: TypeAlias = Callable[[Floats, int], Floats]


def make_snapshots(state: Recurrent, n: int) -> Floats:
    """Allocate the snapshots of a state, `(n, ...)` of its sizes."""
    match state:
        case Conv():
            return np.zeros((n, state.n_past, state.n_channels), np.float32)
        case Ssm():
            return np.zeros((n, state.n_heads, state.head_dim, state.state_dim), np.float32)
        case Delta():
            return np.zeros((n, state.n_heads, state.key_dim, state.value_dim), np.float32)


def recur(run: Run, snapshots: Floats, turn: Turn) -> Floats:
    """Return the outputs of a run's rows, and write the states its saves ask for."""
    state = np.zeros_like(snapshots[0]) if run.first_pos == 0 else snapshots[run.snapshot].copy()
    saved = dict.fromkeys(row for row, _ in run.saves)
    outs = []
    for t in range(run.end - run.start):
        outs.append(turn(state, t))
        if t in saved:
            for snapshot in (to for row, to in run.saves if row == t):
                snapshots[snapshot] = state
    return np.stack(outs).reshape(len(outs), -1)


def convolve(x: Floats, weight: Floats, bias: Floats | None) -> Turn:
    """Return the turn of a depthwise convolution; its state is the inputs before a row."""

    def turn(state: Floats, t: int) -> Floats:
        seen = np.concatenate([state, x[t : t + 1]])  # (taps, channels)
        state[...] = seen[1:]
        y: Floats = (seen * weight.T).sum(axis=0)
        return y if bias is None else y + bias

    return turn


def convolve_centered(x: Floats, weight: Floats) -> Floats:
    """Return a depthwise convolution of rows that takes as many behind as ahead, zeros beyond."""
    n_taps = weight.shape[1]
    side = n_taps // 2
    padded = np.pad(x, ((side, side), (0, 0)))
    y: Floats = sum(
        (padded[j : j + len(x)] * weight[:, j] for j in range(n_taps)), np.zeros_like(x)
    )
    return y


def scan(
    x: Floats, b: Floats, c: Floats, dt: Floats, a: Floats, d: Floats, dt_bias: Floats
) -> Turn:
    """Return the turn of Mamba-2: x is (n, heads, P), b and c (n, groups, state), dt (n, heads)."""
    each = len(a) // b.shape[1]  # heads of a group

    def turn(state: Floats, t: int) -> Floats:
        step = f.ACTIVATIONS["softplus"](dt[t] + dt_bias)
        b_t, c_t = (np.repeat(part[t], each, axis=0) for part in (b, c))
        state *= np.exp(a * step)[:, None, None]
        state += (step[:, None] * x[t])[:, :, None] * b_t[:, None]
        y: Floats = np.matmul(state, c_t[:, :, None])[:, :, 0] + d[:, None] * x[t]
        return y

    return turn


def apply_delta(q: Floats, k: Floats, v: Floats, g: Floats, beta: Floats) -> Turn:
    """Return the turn of the gated delta rule; all are (n, value heads, ..), q not yet scaled."""
    scale = np.float32(q.shape[2] ** -0.5)

    def turn(state: Floats, t: int) -> Floats:
        state *= np.exp(g[t])[:, None, None]
        held = np.matmul(k[t][:, None], state)[:, 0]
        r = (v[t] - held) * beta[t][:, None]
        state += k[t][:, :, None] * r[:, None]
        y: Floats = np.matmul((q[t] * scale)[:, None], state)[:, 0]
        return y

    return turn
