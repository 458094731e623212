"""Compute activations, norms and rotations on NumPy arrays; the plain formulas, nothing else."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

ERF = np.frompyfunc(math.erf, 1, 1)


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + e^-x); where e^-x overflows that is 0, as it should be."""
    with np.errstate(over="ignore"):
        out = np.exp(-x)
    out += 1
    return np.reciprocal(out, out=out)


def softplus(x: Floats) -> Floats:
    """Return ln(1 + e^x), and x itself above 20."""
    out: Floats = np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))
    return out


def silu(x: Floats) -> Floats:
    """Return x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Floats) -> Floats:
    """Return 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    near = np.clip(x, np.float32(-100), np.float32(100))  # tanh is 1 long before; x^3 may overflow
    inner = np.float32(math.sqrt(2 / math.pi)) * (near + np.float32(0.044715) * near**3)
    out: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return out


def gelu_erf(x: Floats) -> Floats:
    """Return 0.5 x (1 + erf(x / sqrt(2)))."""
    turned = np.asarray(ERF(x.astype(np.float64) / math.sqrt(2)), np.float64)
    out: Floats = (0.5 * x * (1 + turned)).astype(np.float32)
    return out


def relu(x: Floats) -> Floats:
    """Return max(x, 0)."""
    return np.maximum(x, np.float32(0))


def relu2(x: Floats) -> Floats:
    """Return max(x, 0)^2."""
    return relu(x) ** 2


def tanh(x: Floats) -> Floats:
    """Return tanh(x)."""
    return np.tanh(x)


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu": relu,
    "relu2": relu2,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "softplus": softplus,
}


def swiglu_oai(g: Floats, u: Floats, alpha: float, limit: float) -> Floats:
    """Return g * sigmoid(alpha g) * (u + 1), g clamped from above and u from both sides."""
    g = np.minimum(g, np.float32(limit))
    u = np.clip(u, np.float32(-limit), np.float32(limit))
    return g * sigmoid(np.float32(alpha) * g) * (u + 1)


def softcap(x: Floats, cap: float) -> Floats:
    """Return cap * tanh(x / cap)."""
    out: Floats = np.float32(cap) * np.tanh(x / np.float32(cap))
    return out


def softmax(x: Floats) -> Floats:
    """Return the softmax of the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Floats = e / e.sum(axis=-1, keepdims=True)
    return out


def mean(x: Floats) -> Floats:
    """Return the mean of the rows, summed in their order."""
    out: Floats = np.add.accumulate(x, axis=0)[-1] / np.float32(len(x))
    return out


# How the rows of a sequence become one.
POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "mean": mean,
    "cls": lambda x: x[0],
    "last": lambda x: x[-1],
}


def in_groups(x: Floats, groups: int) -> Floats:
    """Return x `(n, width)` as `(n, groups, width / groups)`."""
    return x.reshape(len(x), groups, -1)


def weighted(y: Floats, weight: Floats | None, groups: int) -> Floats:
    """Multiply grouped rows by a weight of one group or of the whole width; flatten them."""
    if weight is not None:
        y = y * (weight if weight.size == y.shape[2] else weight.reshape(groups, -1))
    return y.reshape(len(y), -1)


def rms_norm(x: Floats, weight: Floats | None, eps: float, groups: int) -> Floats:
    """Divide each group by its root mean square."""
    y = in_groups(x, groups)
    mean = np.mean(y * y, axis=2, keepdims=True)
    return weighted(y * (1 / np.sqrt(mean + np.float32(eps))), weight, groups)


def layer_norm(
    x: Floats, weight: Floats | None, bias: Floats | None, eps: float, groups: int
) -> Floats:
    """Subtract each group's mean and divide by its standard deviation."""
    y = in_groups(x, groups)
    y = y - y.mean(axis=2, keepdims=True)
    y = y / np.sqrt(np.mean(y * y, axis=2, keepdims=True) + np.float32(eps))
    out = weighted(y, weight, groups)
    if bias is not None:
        out = out + (bias if bias.size == out.shape[1] else np.tile(bias, groups))
    return out


def l2_norm(x: Floats, eps: float, groups: int) -> Floats:
    """Divide each group by its length."""
    y = in_groups(x, groups)
    length = np.sqrt(np.sum(y * y, axis=2, keepdims=True) + np.float32(eps))
    out: Floats = (y / length).reshape(x.shape)
    return out


def rope(x: Floats, cos: Floats, sin: Floats, heads: int, pairing: str) -> Floats:
    """Turn the first 2 * n elements of each head; cos and sin are `(rows, n)`."""
    y = in_groups(x, heads).copy()
    n = cos.shape[1]
    if pairing == "interleaved":
        first, second = slice(0, 2 * n, 2), slice(1, 2 * n, 2)
    else:
        first, second = slice(0, n), slice(n, 2 * n)
    a, b = y[:, :, first].copy(), y[:, :, second].copy()
    c, s = cos[:, None], sin[:, None]
    y[:, :, first] = a * c - b * s
    y[:, :, second] = a * s + b * c
    return y.reshape(x.shape)
