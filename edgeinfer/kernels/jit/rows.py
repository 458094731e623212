"""Kernels over rows of floats, each row alone: quantize, norm, activate, scale, turn.

Each takes the job that hands out its rows first and the thread's number second. The steps are those
of csrc/ops/rows_template.h, bit for bit. Strides are in bytes, other sizes in elements.
"""

from typing import Any

from edgeinfer.kernels.jit.compiler import inlined, kernel
from edgeinfer.kernels.jit.elementary import (
    activated,
    exp,
    reciprocal_root,
    sigmoid,
    softcapped,
    vf_abs,
)
from edgeinfer.kernels.jit.jobs import take
from edgeinfer.kernels.jit.verbs import (
    f32_from_bits,
    f32_from_int,
    fma,
    load_f32,
    store_f32,
    vf_add,
    vf_bits,
    vf_div,
    vf_fma,
    vf_fnma,
    vf_from_vi,
    vf_lane,
    vf_load,
    vf_load_n,
    vf_max,
    vf_min,
    vf_mul,
    vf_set,
    vf_store,
    vf_sub,
    vf_sum,
    vi_from_whole,
    vi_max_all,
    vi_store_s16,
)

Lanes = Any
RUN = 16  # elements that share one activation scale
LEAST_BITS = (127 - 112) << 23  # of 2^-112: below it a run's factor would be infinite
INFINITE_BITS = 0x7F800000
ROUNDING = 12582912.0  # 1.5 * 2^23, added and taken away: the nearest whole number, ties to even


@inlined
def load_lanes(address: int, n: int) -> Lanes:
    """Load 16 floats, or the n < 16 that are left."""
    if n >= 16:
        return vf_load(address)
    return vf_load_n(address, n)


@inlined
def store_lanes(address: int, x: Lanes, n: int) -> None:
    """Store 16 floats, or the n < 16 that are left and nothing beyond."""
    if n >= 16:
        vf_store(address, x)
    else:
        for i in range(n):
            store_f32(address + 4 * i, vf_lane(x, i))


@inlined
def quantize_run(x: int, most: float, q: int, d: int, sums: int) -> float:
    """Quantize 16 floats to s16 codes up to `most`; return d * (sum of codes)."""
    values = vf_load(x)
    bits = vi_max_all(vf_bits(vf_abs(values)))
    largest = f32_from_bits(bits)
    scale = largest / most
    factor = f32_from_bits(0)
    if LEAST_BITS <= bits < INFINITE_BITS:
        factor = most / largest
    else:
        values = vf_set(0.0)
    rounded = vf_sub(vf_add(vf_mul(values, vf_set(factor)), vf_set(ROUNDING)), vf_set(ROUNDING))
    codes = vi_from_whole(rounded)
    total = vf_sum(vf_from_vi(codes))
    vi_store_s16(q, codes)
    store_f32(d, scale)
    store_f32(sums, total)
    product: float = scale * total
    return product


@kernel
def quantize(
    job: int,
    thread: int,
    n_rows: int,
    x: int,
    n: int,
    most: float,
    q: int,
    d: int,
    sums: int,
    ds: int,
) -> None:
    """Per row of n floats: n codes q, s16; d and sums of each run of 16; ds of each 32."""
    row = take(job)
    while row < n_rows:
        at = row * n
        for block in range(n // 32):
            run = at + 32 * block
            scales = run // RUN * 4
            first = quantize_run(x + 4 * run, most, q + 2 * run, d + scales, sums + scales)
            second = quantize_run(
                x + 4 * run + 64, most, q + 2 * run + 32, d + scales + 4, sums + scales + 4
            )
            store_f32(ds + run // 32 * 4, first + second)
        row = take(job)


@kernel
def rms_norm(
    job: int,
    thread: int,
    n_rows: int,
    x: int,
    y: int,
    groups: int,
    n: int,
    weight: int,
    weight_step: int,
    eps: float,
) -> None:
    """y = x * (1 / sqrt(mean of squares + eps)) * weight, per group of n; weight 0: none."""
    row = take(job)
    while row < n_rows:
        for group in range(groups):
            at = 4 * n * (row * groups + group)
            w = weight + weight_step * group
            squares = vf_set(0.0)
            for i in range(0, n, 16):
                v = load_lanes(x + at + 4 * i, n - i)
                squares = vf_fma(v, v, squares)
            r = vf_set(reciprocal_root(vf_sum(squares) / f32_from_int(n) + eps))
            for i in range(0, n, 16):
                v = vf_mul(load_lanes(x + at + 4 * i, n - i), r)
                if weight != 0:
                    v = vf_mul(v, load_lanes(w + 4 * i, n - i))
                store_lanes(y + at + 4 * i, v, n - i)
        row = take(job)


@kernel
def layer_norm(
    job: int,
    thread: int,
    n_rows: int,
    x: int,
    y: int,
    groups: int,
    n: int,
    weight: int,
    bias: int,
    eps: float,
) -> None:
    """y = (x - mean) / sqrt(mean of squares + eps) * weight + bias, per group of n; 0: none."""
    row = take(job)
    while row < n_rows:
        for group in range(groups):
            at, own = 4 * n * (row * groups + group), 4 * n * group
            total, squares = vf_set(0.0), vf_set(0.0)
            for i in range(0, n, 16):
                total = vf_add(total, load_lanes(x + at + 4 * i, n - i))
            mean = vf_set(vf_sum(total) / f32_from_int(n))
            for i in range(0, n, 16):
                v = vf_sub(load_lanes(x + at + 4 * i, n - i), mean)
                store_lanes(y + at + 4 * i, v, n - i)
                v = load_lanes(y + at + 4 * i, n - i)
                squares = vf_fma(v, v, squares)
            r = vf_set(reciprocal_root(vf_sum(squares) / f32_from_int(n) + eps))
            for i in range(0, n, 16):
                v = vf_mul(load_lanes(y + at + 4 * i, n - i), r)
                if weight != 0:
                    v = vf_mul(v, load_lanes(weight + own + 4 * i, n - i))
                if bias != 0:
                    v = vf_add(v, load_lanes(bias + own + 4 * i, n - i))
                store_lanes(y + at + 4 * i, v, n - i)
        row = take(job)


@kernel
def softmax(job: int, thread: int, n_rows: int, x: int, y: int, n: int) -> None:
    """y = the softmax of each row."""
    row = take(job)
    while row < n_rows:
        at = 4 * n * row
        largest = load_f32(x + at)
        for i in range(1, n):
            each = load_f32(x + at + 4 * i)
            largest = each if each > largest else largest
        total = vf_set(0.0)
        for i in range(0, n, 16):
            power = exp(vf_sub(load_lanes(x + at + 4 * i, n - i), vf_set(largest)))
            store_lanes(y + at + 4 * i, power, n - i)
        for i in range(0, n, 16):
            total = vf_add(total, load_lanes(y + at + 4 * i, n - i))
        by = vf_set(vf_sum(total))
        for i in range(0, n, 16):
            store_lanes(y + at + 4 * i, vf_div(load_lanes(y + at + 4 * i, n - i), by), n - i)
        row = take(job)


@kernel
def combine(job: int, thread: int, n_rows: int, y: int, w: int, k: int, out: int, n: int) -> None:
    """out = the sum of the k slots of y, n floats each, times their w, in order."""
    row = take(job)
    while row < n_rows:
        for i in range(0, n, 16):
            at = y + 4 * (n * k * row + i)
            acc = vf_mul(load_lanes(at, n - i), vf_set(load_f32(w + 4 * k * row)))
            for j in range(1, k):
                by = vf_set(load_f32(w + 4 * (k * row + j)))
                acc = vf_fma(load_lanes(at + 4 * n * j, n - i), by, acc)
            store_lanes(out + 4 * (n * row + i), acc, n - i)
        row = take(job)


@kernel
def activate(
    job: int, thread: int, n_rows: int, fn: int, gate: int, up: int, y: int, n: int
) -> None:
    """y = fn(gate), times up unless that is 0."""
    row = take(job)
    while row < n_rows:
        at = 4 * n * row
        for i in range(0, n, 16):
            v = activated(fn, load_lanes(gate + at + 4 * i, n - i))
            if up != 0:
                v = vf_mul(v, load_lanes(up + at + 4 * i, n - i))
            store_lanes(y + at + 4 * i, v, n - i)
        row = take(job)


@kernel
def clamped_gate(
    job: int,
    thread: int,
    n_rows: int,
    gate: int,
    up: int,
    alpha: float,
    limit: float,
    y: int,
    n: int,
) -> None:
    """y = g * sigmoid(alpha * g) * (u + 1): gate up to limit, up within +-limit."""
    row = take(job)
    high, low = vf_set(limit), vf_set(-limit)
    while row < n_rows:
        at = 4 * n * row
        for i in range(0, n, 16):
            g = vf_min(high, load_lanes(gate + at + 4 * i, n - i))
            u = vf_max(low, vf_min(high, load_lanes(up + at + 4 * i, n - i)))
            gated = vf_mul(g, sigmoid(vf_mul(vf_set(alpha), g)))
            store_lanes(y + at + 4 * i, vf_mul(gated, vf_add(u, vf_set(1.0))), n - i)
        row = take(job)


@kernel
def scale(
    job: int,
    thread: int,
    n_rows: int,
    x: int,
    by: float,
    cap: float,
    inverse_cap: float,
    y: int,
    n: int,
) -> None:
    """y = by * x, then cap * tanh(y / cap) where cap > 0."""
    row = take(job)
    while row < n_rows:
        at = 4 * n * row
        for i in range(0, n, 16):
            v = vf_mul(load_lanes(x + at + 4 * i, n - i), vf_set(by))
            if cap > 0:
                v = softcapped(v, cap, inverse_cap)
            store_lanes(y + at + 4 * i, v, n - i)
        row = take(job)


@inlined
def turn_halves(x: int, n_pairs: int, cosines: int, sines: int) -> None:
    for i in range(0, n_pairs, 16):
        n = n_pairs - i
        a, b = load_lanes(x + 4 * i, n), load_lanes(x + 4 * (n_pairs + i), n)
        c, s = load_lanes(cosines + 4 * i, n), load_lanes(sines + 4 * i, n)
        store_lanes(x + 4 * i, vf_fnma(b, s, vf_mul(a, c)), n)
        store_lanes(x + 4 * (n_pairs + i), vf_fma(b, c, vf_mul(a, s)), n)


@inlined
def turn_neighbours(x: int, n_pairs: int, cosines: int, sines: int) -> None:
    for i in range(n_pairs):
        a, b = load_f32(x + 8 * i), load_f32(x + 8 * i + 4)
        c, s = load_f32(cosines + 4 * i), load_f32(sines + 4 * i)
        store_f32(x + 8 * i, fma(-b, s, a * c))
        store_f32(x + 8 * i + 4, fma(b, c, a * s))


@kernel
def rope(
    job: int,
    thread: int,
    n_rows: int,
    x: int,
    y: int,
    heads: int,
    dim: int,
    n_pairs: int,
    interleaved: int,
    cosines: int,
    sines: int,
) -> None:
    """Turn the first 2 * n_pairs of every head: (a, b) -> (a c - b s, a s + b c)."""
    row = take(job)
    while row < n_rows:
        at = 4 * n_pairs * row
        for head in range(heads):
            start = y + 4 * dim * (row * heads + head)
            source = x + 4 * dim * (row * heads + head)
            for i in range(0, dim, 16):
                store_lanes(start + 4 * i, load_lanes(source + 4 * i, dim - i), dim - i)
            if interleaved != 0:
                turn_neighbours(start, n_pairs, cosines + at, sines + at)
            else:
                turn_halves(start, n_pairs, cosines + at, sines + at)
        row = take(job)
