"""The kernels of attention: query heads of one KV head, over pages, in chunks of 256 positions.

The steps are the law at the head of csrc/ops/attention_template.h, bit for bit. Keys and values
are numbers of `size` bytes, f32 or f16: a page holds, for each KV head, keys as [dim][64 positions]
and values as [64 positions][dim]. A thread holds a chunk of both as float32 for all its rows.
"""

from typing import Any

from edgeinfer.kernels.backend import PAGE_LEN
from edgeinfer.kernels.jit.compiler import inlined, kernel
from edgeinfer.kernels.jit.elementary import exp, exp_of, softcapped, vf_abs
from edgeinfer.kernels.jit.jobs import take
from edgeinfer.kernels.jit.rows import load_lanes, store_lanes
from edgeinfer.kernels.jit.verbs import (
    copy_i16,
    f32_from_bits,
    fma,
    load_f32,
    load_i32,
    load_i64,
    store_f32,
    vf_add,
    vf_fma,
    vf_fnma,
    vf_from_f16,
    vf_from_vi,
    vf_largest,
    vf_load,
    vf_max,
    vf_mul,
    vf_set,
    vf_store,
    vf_sub,
    vf_sum,
    vf_to_f16,
    vi_count,
    vi_set,
    vi_sub,
)

Lanes = Any
CHUNK = 256  # positions whose softmax is computed together; part of the law
MOST_ROWS = (
    32  # tokens of a span by query heads of a KV head; a larger group has spans of one token
)
MINUS_INFINITY = 0xFF800000

# The numbers that describe one span: tokens of one sequence that stand together.
SPAN_NUMBERS = 5
FIRST_ROW, N_TOKENS, PAGES, FIRST_POSITION, LAST_POSITION = range(5)  # the last: of the sequence


def scratch_bytes(key_dim: int, value_dim: int, group: int) -> int:
    """Return what one thread needs."""
    rows, lines = max(MOST_ROWS, group), padded(value_dim)
    n_floats = CHUNK * (key_dim + lines + 2) + rows * (lines + 2) + padded(key_dim) + lines
    return 4 * n_floats + 4096


def tokens_of_span(group: int) -> int:
    """Return the most tokens of a span."""
    return max(1, MOST_ROWS // group)


def padded(dim: int) -> int:
    """Round up to whole vectors."""
    return (dim + 15) // 16 * 16


@inlined
def whole(dim: int) -> int:
    return (dim + 15) // 16 * 16


@inlined
def minus_infinity() -> float:
    number: float = f32_from_bits(MINUS_INFINITY)
    return number


@inlined
def keep(to: int, x: Lanes, n: int, step: int, size: int, spare: int) -> None:
    """Keep the first n lanes as numbers of this size, step bytes apart."""
    if size == 2:
        vf_to_f16(spare, x)
        for i in range(min(16, n)):
            copy_i16(to + step * i, spare + 2 * i)
    else:
        vf_store(spare, x)
        for i in range(min(16, n)):
            store_f32(to + step * i, load_f32(spare + 4 * i))


@inlined
def kept(at: int, size: int) -> Lanes:
    """16 numbers of this size."""
    return vf_from_f16(at) if size == 2 else vf_load(at)


@kernel
def kv_store(
    job: int,
    thread: int,
    n_rows: int,
    size: int,
    n_kv_heads: int,
    key_dim: int,
    value_dim: int,
    k: int,
    v: int,
    v_stride: int,
    slots: int,
    keys: int,
    values: int,
    scratch: int,
    scratch_size: int,
) -> None:
    """Append the keys and values of each row at its slot: a page and a position in it, two s32.

    The heads of k follow each other; those of v are v_stride bytes apart.
    """
    spare = scratch + thread * scratch_size
    row = take(job)
    while row < n_rows:
        page, slot = load_i32(slots + 8 * row), load_i32(slots + 8 * row + 4)
        for head in range(n_kv_heads):
            number, unit = row * n_kv_heads + head, page * n_kv_heads + head
            key = keys + size * (PAGE_LEN * key_dim * unit + slot)
            for d in range(0, key_dim, 16):
                x = load_lanes(k + 4 * (key_dim * number + d), key_dim - d)
                keep(key + size * PAGE_LEN * d, x, key_dim - d, size * PAGE_LEN, size, spare)
            value = values + size * value_dim * (PAGE_LEN * unit + slot)
            for d in range(0, value_dim, 16):
                x = load_lanes(v + v_stride * number + 4 * d, value_dim - d)
                keep(value + size * d, x, value_dim - d, size, size, spare)
        row = take(job)


@inlined
def convert_keys(source: int, dim: int, size: int, to: int) -> None:
    """One page: [dim][64] to rows of 256 floats."""
    for d in range(dim):
        for i in range(0, PAGE_LEN, 16):
            vf_store(to + 4 * (CHUNK * d + i), kept(source + size * (PAGE_LEN * d + i), size))


@inlined
def convert_values(source: int, dim: int, size: int, to: int) -> None:
    """One page: [64][dim] to rows of whole vectors."""
    for i in range(PAGE_LEN):
        for d in range(0, dim, 16):
            vf_store(to + 4 * (whole(dim) * i + d), kept(source + size * (dim * i + d), size))


@inlined
def score(q: int, dim: int, keys: int, low: int, high: int, scores: int) -> None:
    """Scores of positions low .. high-1 of the chunk, and of those around them up to whole 64."""
    for p in range(low // 64 * 64, high, 64):
        s0, s1, s2, s3 = vf_set(0.0), vf_set(0.0), vf_set(0.0), vf_set(0.0)
        for d in range(dim):
            x, at = vf_set(load_f32(q + 4 * d)), keys + 4 * (CHUNK * d + p)
            s0 = vf_fma(x, vf_load(at), s0)
            s1 = vf_fma(x, vf_load(at + 64), s1)
            s2 = vf_fma(x, vf_load(at + 128), s2)
            s3 = vf_fma(x, vf_load(at + 192), s3)
        vf_store(scores + 4 * p, s0)
        vf_store(scores + 4 * p + 64, s1)
        vf_store(scores + 4 * p + 128, s2)
        vf_store(scores + 4 * p + 192, s3)


@inlined
def shape_scores(
    scores: int, start: int, end: int, cap: float, inverse_cap: float, slope: float, here: int
) -> None:
    """What softcap and slope make of scores; here: the row's position less the chunk's."""
    for i in range(start, end, 16):
        s = vf_load(scores + 4 * i)
        if cap > 0:
            s = softcapped(s, cap, inverse_cap)
        if slope != 0:
            distance = vf_abs(vf_from_vi(vi_sub(vi_set(here - i), vi_count())))
            s = vf_fnma(vf_set(slope), distance, s)
        vf_store(scores + 4 * i, s)


@inlined
def soften(scores: int, low: int, high: int, ml: int) -> None:
    """Scores to weights; their largest score and their sum go to ml."""
    start, end = low // 16 * 16, (high + 15) // 16 * 16
    for i in range(start, low):
        store_f32(scores + 4 * i, minus_infinity())
    for i in range(high, end):
        store_f32(scores + 4 * i, minus_infinity())
    most, total = vf_set(minus_infinity()), vf_set(0.0)
    for i in range(start, end, 16):
        most = vf_max(vf_load(scores + 4 * i), most)
    largest = vf_largest(most)
    for i in range(start, end, 16):
        weights = exp(vf_sub(vf_load(scores + 4 * i), vf_set(largest)))
        vf_store(scores + 4 * i, weights)
        total = vf_add(total, weights)
    sum_ = vf_sum(total)
    store_f32(ml, largest if sum_ == sum_ else sum_)
    store_f32(ml + 4, sum_)


@inlined
def weigh(weights: int, low: int, high: int, values: int, dim: int, o: int) -> None:
    """o = the sum of weight * value, position by position."""
    step = 4 * whole(dim)
    for d in range(0, whole(dim), 64):
        if d + 64 <= whole(dim):
            a0, a1, a2, a3 = vf_set(0.0), vf_set(0.0), vf_set(0.0), vf_set(0.0)
            for i in range(low, high):
                w, at = vf_set(load_f32(weights + 4 * i)), values + step * i + 4 * d
                a0 = vf_fma(w, vf_load(at), a0)
                a1 = vf_fma(w, vf_load(at + 64), a1)
                a2 = vf_fma(w, vf_load(at + 128), a2)
                a3 = vf_fma(w, vf_load(at + 192), a3)
            vf_store(o + 4 * d, a0)
            vf_store(o + 4 * d + 64, a1)
            vf_store(o + 4 * d + 128, a2)
            vf_store(o + 4 * d + 192, a3)
        else:
            for e in range(d, whole(dim), 16):
                acc = vf_set(0.0)
                for i in range(low, high):
                    w = vf_set(load_f32(weights + 4 * i))
                    acc = vf_fma(w, vf_load(values + step * i + 4 * e), acc)
                vf_store(o + 4 * e, acc)


@inlined
def merge(ml: int, o: int, chunk_ml: int, chunk_o: int, dim: int) -> None:
    """Join a chunk's m, l and o to those of the chunks before it."""
    m, mc = load_f32(ml), load_f32(chunk_ml)
    lc = load_f32(chunk_ml + 4)
    if mc == minus_infinity():
        return
    if m == minus_infinity():
        store_f32(ml, mc)
        store_f32(ml + 4, lc)
        for d in range(0, whole(dim), 16):
            vf_store(o + 4 * d, vf_load(chunk_o + 4 * d))
        return
    largest = m if m > mc else mc
    a, b = exp_of(m - largest), exp_of(mc - largest)
    store_f32(ml, largest)
    store_f32(ml + 4, fma(load_f32(ml + 4), a, lc * b))
    for d in range(0, whole(dim), 16):
        part = vf_mul(vf_load(chunk_o + 4 * d), vf_set(b))
        vf_store(o + 4 * d, vf_fma(vf_load(o + 4 * d), vf_set(a), part))


@inlined
def finish(ml: int, o: int, sink: int, dim: int, out: int) -> None:
    """out = o / l; the sink is one more logit in the sum, without a value."""
    m, total, a = load_f32(ml), load_f32(ml + 4), f32_from_bits(0x3F800000)
    one = a
    if sink != 0:
        logit = load_f32(sink)
        largest = m if m > logit else logit
        a = exp_of(m - largest)
        total = fma(total, a, exp_of(logit - largest))
    by = vf_set((one / total) * a)
    for d in range(0, dim, 16):
        store_lanes(out + 4 * d, vf_mul(vf_load(o + 4 * d), by), dim - d)


@inlined
def scale_query(q: int, dim: int, by: float, to: int) -> None:
    for d in range(0, dim, 16):
        vf_store(to + 4 * d, vf_mul(load_lanes(q + 4 * d, dim - d), vf_set(by)))


@kernel
def attention(
    job: int,
    thread: int,
    n_pieces: int,
    size: int,
    spans: int,
    n_kv_heads: int,
    group: int,
    key_dim: int,
    value_dim: int,
    keys: int,
    values: int,
    q: int,
    out: int,
    by: float,
    cap: float,
    inverse_cap: float,
    behind: int,
    ahead: int,
    sinks: int,
    slopes: int,
    scratch: int,
    scratch_size: int,
) -> None:
    """Piece i: KV head i % n_kv_heads of span i // n_kv_heads from the end, where most is seen."""
    lines = whole(value_dim)
    chunk_keys = scratch + thread * scratch_size
    chunk_values = chunk_keys + 4 * CHUNK * key_dim
    scores = chunk_values + 4 * CHUNK * lines
    scaled = scores + 4 * CHUNK
    chunk_o = scaled + 4 * whole(key_dim)
    chunk_ml = chunk_o + 4 * lines
    state = chunk_ml + 64
    state_size = 4 * lines + 8
    zero = f32_from_bits(0)
    piece = take(job)
    while piece < n_pieces:
        span = spans + 8 * SPAN_NUMBERS * ((n_pieces - 1 - piece) // n_kv_heads)
        head = piece % n_kv_heads
        n_tokens, pages = load_i64(span + 8 * N_TOKENS), load_i64(span + 8 * PAGES)
        first_row, start = load_i64(span + 8 * FIRST_ROW), load_i64(span + 8 * FIRST_POSITION)
        last = load_i64(span + 8 * LAST_POSITION)
        end = min(start + n_tokens - 1 + ahead, last) + 1  # beyond what any row sees
        for r in range(n_tokens * group):
            store_f32(state + state_size * r, minus_infinity())
            store_f32(state + state_size * r + 4, zero)
        first = max(0, start - behind)
        for chunk in range(first // CHUNK * CHUNK, end, CHUNK):
            for p in range(
                max(first, chunk) // PAGE_LEN * PAGE_LEN, min(end, chunk + CHUNK), PAGE_LEN
            ):
                page = load_i32(pages + 4 * (p // PAGE_LEN)) * n_kv_heads + head
                convert_keys(
                    keys + size * PAGE_LEN * key_dim * page,
                    key_dim,
                    size,
                    chunk_keys + 4 * (p - chunk),
                )
                convert_values(
                    values + size * PAGE_LEN * value_dim * page,
                    value_dim,
                    size,
                    chunk_values + 4 * lines * (p - chunk),
                )
            for r in range(n_tokens * group):
                token = r // group
                here = start + token - chunk
                low = max(here - behind, 0)
                high = min(here + ahead, last - chunk, CHUNK - 1) + 1
                if low >= high:
                    continue
                number = ((first_row + token) * n_kv_heads + head) * group + r % group
                slope = load_f32(slopes + 4 * (head * group + r % group)) if slopes != 0 else zero
                scale_query(q + 4 * key_dim * number, key_dim, by, scaled)
                score(scaled, key_dim, chunk_keys, low, high, scores)
                if cap > 0 or slope != 0:
                    around = (low // 16 * 16, (high + 15) // 16 * 16)
                    shape_scores(scores, around[0], around[1], cap, inverse_cap, slope, here)
                soften(scores, low, high, chunk_ml)
                weigh(scores, low, high, chunk_values, value_dim, chunk_o)
                at = state + state_size * r
                merge(at, at + 8, chunk_ml, chunk_o, value_dim)
        for r in range(n_tokens * group):
            number = ((first_row + r // group) * n_kv_heads + head) * group + r % group
            sink = sinks + 4 * (head * group + r % group) if sinks != 0 else 0
            at = state + state_size * r
            finish(at, at + 8, sink, value_dim, out + 4 * value_dim * number)
        piece = take(job)
