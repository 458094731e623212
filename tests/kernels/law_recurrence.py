"""The law of csrc/ops/recurrence_template.h in NumPy, and what it stands for in float64.

Each takes the state before a row, changes it in place and returns the row's output. States are
those of the law: taps oldest first, rows of columns of each head.
"""

import numpy as np

from tests.kernels.law import fma


def exp(x: np.ndarray) -> np.ndarray:
    """exp(x) for x <= 0, float32, by the steps of csrc/ops/math_template.h."""
    magic = np.float32(12582912)
    t = fma(x, np.float32(float.fromhex("0x1.715476p+0")), magic)
    n = t - magic
    r = fma(-n, np.float32(0.693359375), x)
    r = fma(-n, np.float32(-2.12194440e-4), r)
    p = np.full_like(x, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5, 1.0, 1.0):
        p = fma(p, r, np.float32(5.0000001201e-1 if c == 0.5 else c))
    bits = p.view(np.int32) + (t.view(np.int32) << 23)
    return np.where(x < -87, np.float32(0), bits.view(np.float32))


def softplus(x: np.ndarray) -> np.ndarray:
    t = exp(-np.abs(x))
    s = t / (np.float32(2) + t)
    w = s * s
    p = np.full_like(x, 0.243009374)
    for c in (0.214276567, 0.286168844, 0.39998877, 0.666666746, 2.0):
        p = fma(p, w, np.float32(c))
    return fma(s, p, np.maximum(x, np.float32(0)))


def convolve(state, x, weight, bias):
    """state (past, channels), x (channels,), weight (channels, taps)."""
    seen = np.concatenate([state, x[None]])
    y = seen[0] * weight[:, 0]
    for j in range(1, len(seen)):
        y = fma(seen[j], weight[:, j], y)
    state[...] = seen[1:]
    return y if bias is None else y + bias


def scan(state, x, b, c, dt, a, d, dt_bias):
    """state (heads, n, P), x (heads, P), b and c (heads, n), the others (heads,)."""
    t = softplus(dt + dt_bias)
    keep = exp(a * t)
    u, y = t[:, None] * x, np.zeros_like(x)
    for i in range(state.shape[1]):
        state[:, i] = fma(u, b[:, i, None], state[:, i] * keep[:, None])
        y = fma(state[:, i], c[:, i, None], y)
    return fma(d[:, None], x, y)


def delta(state, q, k, v, g, beta):
    """state (heads, Dk, Dv), q and k (heads, Dk), v (heads, Dv), g and beta (heads,)."""
    scale = np.float32(1) / np.sqrt(np.float32(q.shape[1]))
    state *= exp(g)[:, None, None]
    held, y = np.zeros_like(v), np.zeros_like(v)
    for i in range(state.shape[1]):
        held = fma(state[:, i], k[:, i, None], held)
    r = (v - held) * beta[:, None]
    for i in range(state.shape[1]):
        state[:, i] = fma(k[:, i, None], r, state[:, i])
        y = fma((q[:, i] * scale)[:, None], state[:, i], y)
    return y


def exact_convolve(state, x, weight, bias):
    seen = np.concatenate([state, x[None]])
    state[...] = seen[1:]
    return np.einsum("jc,cj->c", seen, weight) + (0 if bias is None else bias)


def exact_scan(state, x, b, c, dt, a, d, dt_bias):
    t = np.log1p(np.exp(dt + dt_bias))
    state *= np.exp(a * t)[:, None, None]
    state += np.einsum("hn,hp->hnp", b, t[:, None] * x)
    return np.einsum("hnp,hn->hp", state, c) + d[:, None] * x


def exact_delta(state, q, k, v, g, beta):
    state *= np.exp(g)[:, None, None]
    r = (v - np.einsum("hk,hkv->hv", k, state)) * beta[:, None]
    state += np.einsum("hk,hv->hkv", k, r)
    return np.einsum("hk,hkv->hv", q * q.shape[1] ** -0.5, state)
