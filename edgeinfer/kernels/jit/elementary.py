"""Compute exp and the activations on 16 lanes: the steps of csrc/ops/math_template.h, bit for bit.

No libm. NaN in, NaN out.
"""

from typing import Any

from edgeinfer.kernels.jit.compiler import inlined
from edgeinfer.kernels.jit.verbs import (
    vf_add,
    vf_bits,
    vf_div,
    vf_fma,
    vf_fnma,
    vf_from_bits,
    vf_lane,
    vf_max,
    vf_mul,
    vf_root,
    vf_select_ge,
    vf_set,
    vf_sub,
    vi_add,
    vi_and,
    vi_or,
    vi_set,
    vi_shl,
)

Lanes = Any
ZERO, ONE = 0.0, 1.0


@inlined
def vf_abs(x: Lanes) -> Lanes:
    return vf_from_bits(vi_and(vf_bits(x), vi_set(0x7FFFFFFF)))


@inlined
def exp(x: Lanes) -> Lanes:
    """e^x for x <= 0; 0 below -87, where the result would leave the normal range."""
    magic = vf_set(12582912.0)
    t = vf_fma(x, vf_set(1.44269502162933349609375), magic)
    n = vf_sub(t, magic)
    r = vf_fnma(n, vf_set(0.693359375), x)
    r = vf_fnma(n, vf_set(-2.12194440e-4), r)
    p = vf_fma(vf_set(1.9875691500e-4), r, vf_set(1.3981999507e-3))
    p = vf_fma(p, r, vf_set(8.3334519073e-3))
    p = vf_fma(p, r, vf_set(4.1665795894e-2))
    p = vf_fma(p, r, vf_set(1.6666665459e-1))
    p = vf_fma(p, r, vf_set(5.0000001201e-1))
    p = vf_fma(p, r, vf_set(ONE))
    p = vf_fma(p, r, vf_set(ONE))
    p = vf_from_bits(vi_add(vf_bits(p), vi_shl(vf_bits(t), 23)))
    return vf_select_ge(x, vf_set(-87.0), p, vf_max(vf_set(ZERO), x))


@inlined
def exp_of(x: float) -> float:
    """e^x of one float."""
    lane: float = vf_lane(exp(vf_set(x)), 0)
    return lane


@inlined
def sigmoid(x: Lanes) -> Lanes:
    one, t = vf_set(ONE), exp(vf_sub(vf_set(ZERO), vf_abs(x)))
    return vf_div(vf_select_ge(x, vf_set(ZERO), one, t), vf_add(one, t))


@inlined
def tanh(x: Lanes) -> Lanes:
    one, t = vf_set(ONE), exp(vf_mul(vf_set(-2.0), vf_abs(x)))
    magnitude = vf_bits(vf_div(vf_sub(one, t), vf_add(one, t)))
    return vf_from_bits(vi_or(magnitude, vi_and(vf_bits(x), vi_set(-0x80000000))))


@inlined
def softcapped(x: Lanes, cap: float, inverse_cap: float) -> Lanes:
    """cap * tanh(x / cap)."""
    return vf_mul(vf_set(cap), tanh(vf_mul(x, vf_set(inverse_cap))))


@inlined
def gelu_tanh(x: Lanes) -> Lanes:
    twice = vf_mul(x, vf_fma(vf_mul(x, x), vf_set(0.0713548163), vf_set(1.59576912)))
    return vf_mul(x, sigmoid(twice))


@inlined
def gelu_erf(x: Lanes) -> Lanes:
    one, z = vf_set(ONE), vf_mul(vf_abs(x), vf_set(0.707106781))
    t = vf_div(one, vf_fma(vf_set(0.4), z, one))
    p = vf_fma(vf_set(0.0155853871), t, vf_set(-0.0455160365))
    p = vf_fma(p, t, vf_set(-0.00918818172))
    p = vf_fma(p, t, vf_set(0.102801926))
    p = vf_fma(p, t, vf_set(-0.000910795992))
    p = vf_fma(p, t, vf_set(0.114120379))
    p = vf_fma(p, t, vf_set(0.0964797586))
    p = vf_fma(p, t, vf_set(0.113847084))
    p = vf_fma(p, t, vf_set(0.112780482))
    tail = vf_mul(vf_mul(p, t), exp(vf_sub(vf_set(ZERO), vf_mul(z, z))))
    return vf_mul(x, vf_select_ge(x, vf_set(ZERO), vf_sub(one, tail), tail))


@inlined
def relu(x: Lanes) -> Lanes:
    return vf_max(vf_set(ZERO), x)


@inlined
def softplus(x: Lanes) -> Lanes:
    t = exp(vf_sub(vf_set(ZERO), vf_abs(x)))
    s = vf_div(t, vf_add(vf_set(2.0), t))
    w = vf_mul(s, s)
    p = vf_fma(vf_set(0.243009374), w, vf_set(0.214276567))
    p = vf_fma(p, w, vf_set(0.286168844))
    p = vf_fma(p, w, vf_set(0.39998877))
    p = vf_fma(p, w, vf_set(0.666666746))
    p = vf_fma(p, w, vf_set(2.0))
    return vf_fma(s, p, relu(x))


@inlined
def activated(fn: int, x: Lanes) -> Lanes:
    """Function number `fn` of FUNCTIONS."""
    if fn == 0:
        return vf_mul(x, sigmoid(x))
    if fn == 1:
        return gelu_tanh(x)
    if fn == 2:
        return gelu_erf(x)
    if fn == 3:
        return relu(x)
    if fn == 4:
        y = relu(x)
        return vf_mul(y, y)
    if fn == 5:
        return sigmoid(x)
    if fn == 6:
        return tanh(x)
    return softplus(x)


@inlined
def reciprocal_root(x: float) -> float:
    """1 / sqrt(x), two roundings."""
    lane: float = vf_lane(vf_div(vf_set(ONE), vf_root(vf_set(x))), 0)
    return lane
