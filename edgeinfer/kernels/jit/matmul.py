"""The matmul kernel: 16 rows of any format, unpacked once, by every token of the step.

Rows stand in lanes, so each lane follows the law of csrc/formats.h step by step. Weights stay in
the file's blocks: a thread unpacks 16 rows to its scratch (codes s8 by row; scales float32, 16 rows
side by side), and all tokens meet them there.
"""

from typing import Any

from edgeinfer.kernels.jit.compiler import inlined, kernel
from edgeinfer.kernels.jit.formats import BLOCKS_32, FLOATS, RUNS_16, SUPER_16
from edgeinfer.kernels.jit.jobs import take
from edgeinfer.kernels.jit.rows import store_lanes
from edgeinfer.kernels.jit.unpack import LINE
from edgeinfer.kernels.jit.verbs import (
    call_unpack,
    load_f32,
    load_i64,
    vf_add,
    vf_fma,
    vf_fnma,
    vf_from_vi,
    vf_load,
    vf_mul,
    vf_set,
    vi_dots,
)

Lanes = Any
LANES = 16  # rows of a matrix that are computed together

# The numbers that describe one matrix of a job, 8 bytes each. COLUMNS is 0 where the columns are
# the rows of the input in order, else it lists pairs: a row of the input, a row of the result.
PART_NUMBERS = 11
WEIGHT, ROW_BYTES, N_ROWS, UNPACK, LAW, HAS_MIN, OUT, BIAS, SCALE, COLUMNS, N_COLUMNS = range(11)


def scratch_bytes(n_columns: int) -> int:
    """Return what one thread needs for 16 rows: floats, or codes and four planes of scales."""
    return LINE * n_columns + 4096


@inlined
def dots_16(codes: int, n: int, q: int) -> Lanes:
    return vf_from_vi(vi_dots(codes, n, q))


@inlined
def dots_32(codes: int, n: int, q: int, d: int) -> Lanes:
    first = vf_mul(dots_16(codes, n, q), vf_set(load_f32(d)))
    return vf_fma(dots_16(codes + 16, n, q + 32), vf_set(load_f32(d + 4)), first)


@inlined
def blocks_32(n: int, has_min: int, planes: int, q: int, d: int, ds: int) -> Lanes:
    w, wlow = planes + 24 * n, planes + 26 * n
    acc = vf_set(0.0)
    for j in range(n // 32):
        acc = vf_fma(dots_32(planes + 32 * j, n, q + 64 * j, d + 8 * j), vf_load(w + LINE * j), acc)
        if has_min != 0:
            acc = vf_fma(vf_load(wlow + LINE * j), vf_set(load_f32(ds + 4 * j)), acc)
    return acc


@inlined
def super_32(n: int, has_min: int, planes: int, q: int, d: int, ds: int) -> Lanes:
    c, low, w, wlow = planes + 16 * n, planes + 20 * n, planes + 24 * n, planes + 26 * n
    acc = vf_set(0.0)
    for block in range(n // 256):
        u, v = vf_set(0.0), vf_set(0.0)
        for j in range(8 * block, 8 * block + 8):
            scale = vf_load(c + LINE * j)
            for run in range(2 * j, 2 * j + 2):
                t = vf_mul(dots_16(planes + 16 * run, n, q + 32 * run), scale)
                u = vf_fma(t, vf_set(load_f32(d + 4 * run)), u)
            if has_min != 0:
                v = vf_fma(vf_load(low + LINE * j), vf_set(load_f32(ds + 4 * j)), v)
        acc = vf_fma(u, vf_load(w + LINE * block), acc)
        if has_min != 0:
            acc = vf_fnma(v, vf_load(wlow + LINE * block), acc)
    return acc


@inlined
def super_16(n: int, has_min: int, planes: int, q: int, d: int, sums: int) -> Lanes:
    c, low, w, wlow = planes + 16 * n, planes + 20 * n, planes + 24 * n, planes + 26 * n
    acc = vf_set(0.0)
    for block in range(n // 256):
        u, v = vf_set(0.0), vf_set(0.0)
        for run in range(16 * block, 16 * block + 16):
            scale = load_f32(d + 4 * run)
            t = vf_mul(dots_16(planes + 16 * run, n, q + 32 * run), vf_load(c + LINE * run))
            u = vf_fma(t, vf_set(scale), u)
            if has_min != 0:
                both = vf_set(scale * load_f32(sums + 4 * run))
                v = vf_fma(vf_load(low + LINE * run), both, v)
        acc = vf_fma(u, vf_load(w + LINE * block), acc)
        if has_min != 0:
            acc = vf_fnma(v, vf_load(wlow + LINE * block), acc)
    return acc


@inlined
def runs_16(n: int, planes: int, q: int, d: int) -> Lanes:
    """Float scales, which stand where the others have integers."""
    acc = vf_set(0.0)
    for run in range(n // 16):
        t = vf_mul(dots_16(planes + 16 * run, n, q + 32 * run), vf_set(load_f32(d + 4 * run)))
        acc = vf_fma(t, vf_load(planes + 16 * n + LINE * run), acc)
    return acc


@inlined
def in_row(part: int, column: int) -> int:
    """The row of the input that a column is."""
    columns = load_i64(part + 8 * COLUMNS)
    row: int = load_i64(columns + 16 * column) if columns != 0 else column
    return row


@inlined
def store(acc: Lanes, part: int, first: int, column: int) -> None:
    """Scale, add the bias; store the rows that exist where the column's result goes."""
    scale, bias, columns = (
        load_i64(part + 8 * SCALE),
        load_i64(part + 8 * BIAS),
        load_i64(part + 8 * COLUMNS),
    )
    if scale != 0:
        acc = vf_mul(acc, vf_set(load_f32(scale)))
    if bias != 0:
        acc = vf_add(acc, vf_load(bias + 4 * first))
    row = load_i64(columns + 16 * column + 8) if columns != 0 else column
    n_rows = load_i64(part + 8 * N_ROWS)
    y = load_i64(part + 8 * OUT) + 4 * n_rows * row
    store_lanes(y + 4 * first, acc, n_rows - first)


@inlined
def floats_by_columns(n: int, planes: int, x: int, part: int, first: int) -> None:
    """Four columns at a time: one alone waits for its sums."""
    n_columns = load_i64(part + 8 * N_COLUMNS)
    for column in range(0, n_columns, 4):
        x0 = x + 4 * n * in_row(part, column)
        x1 = x + 4 * n * in_row(part, min(column + 1, n_columns - 1))
        x2 = x + 4 * n * in_row(part, min(column + 2, n_columns - 1))
        x3 = x + 4 * n * in_row(part, min(column + 3, n_columns - 1))
        a0, a1, a2, a3 = vf_set(0.0), vf_set(0.0), vf_set(0.0), vf_set(0.0)
        for k in range(n):
            w = vf_load(planes + LINE * k)
            a0 = vf_fma(w, vf_set(load_f32(x0 + 4 * k)), a0)
            a1 = vf_fma(w, vf_set(load_f32(x1 + 4 * k)), a1)
            a2 = vf_fma(w, vf_set(load_f32(x2 + 4 * k)), a2)
            a3 = vf_fma(w, vf_set(load_f32(x3 + 4 * k)), a3)
        for i in range(min(4, n_columns - column)):
            acc = a0
            if i == 1:
                acc = a1
            elif i == 2:
                acc = a2
            elif i == 3:
                acc = a3
            store(acc, part, first, column + i)


@inlined
def unpack_rows(part: int, first: int, n: int, planes: int) -> None:
    """Unpack 16 rows; of a last group with fewer, its last row takes the free lanes."""
    is_float = load_i64(part + 8 * LAW) == FLOATS
    for lane in range(16):
        number = min(first + lane, load_i64(part + 8 * N_ROWS) - 1)
        row = load_i64(part + 8 * WEIGHT) + number * load_i64(part + 8 * ROW_BYTES)
        at = planes + 4 * lane
        c = at if is_float else at + 16 * n
        codes = planes + lane * n
        call_unpack(
            load_i64(part + 8 * UNPACK), row, n, codes, c, at + 20 * n, at + 24 * n, at + 26 * n
        )


@kernel
def matmul(
    job: int,
    thread: int,
    n_groups: int,
    parts: int,
    n: int,
    x: int,
    q: int,
    d: int,
    sums: int,
    ds: int,
    scratch: int,
    scratch_size: int,
) -> None:
    """out = x W^T + bias for matrices of n columns; n_groups: their 16 rows each, all together."""
    planes = scratch + thread * scratch_size
    group = take(job)
    while group < n_groups:
        part, first = parts, 16 * group
        while first >= (load_i64(part + 8 * N_ROWS) + 15) // 16 * 16:
            first -= (load_i64(part + 8 * N_ROWS) + 15) // 16 * 16
            part += 8 * PART_NUMBERS
        unpack_rows(part, first, n, planes)
        law, has_min = load_i64(part + 8 * LAW), load_i64(part + 8 * HAS_MIN)
        if law == FLOATS:
            floats_by_columns(n, planes, x, part, first)
        else:
            for column in range(load_i64(part + 8 * N_COLUMNS)):
                row = in_row(part, column)
                at, runs = q + 2 * n * row, n // 16 * 4 * row
                if law == BLOCKS_32:
                    acc = blocks_32(n, has_min, planes, at, d + runs, ds + runs // 2)
                elif law == SUPER_16:
                    acc = super_16(n, has_min, planes, at, d + runs, sums + runs)
                elif law == RUNS_16:
                    acc = runs_16(n, planes, at, d + runs)
                else:
                    acc = super_32(n, has_min, planes, at, d + runs, ds + runs // 2)
                store(acc, part, first, column)
        group = take(job)
