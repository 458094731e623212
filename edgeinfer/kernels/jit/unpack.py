"""Unpack rows of weights: the file's blocks go in; signed codes and plain scales come out.

Each function takes a row's address, its columns, and where the codes (s8, in order) and the scales
go: `c` and `low`, of each sub-block, `w` and `wlow`, of each block; all float32, the next one 64
bytes on, since 16 rows stand side by side there. Float formats leave float32 weights at `c` alone.
csrc/formats.h says what the fields are. A format is one function and one row of FORMATS.
"""

from typing import Any

from edgeinfer.kernels.jit.compiler import callback, inlined
from edgeinfer.kernels.jit.verbs import (
    f32_from_bits,
    f32_from_f16,
    f32_from_int,
    load_f32,
    load_s8,
    load_u8,
    load_u16,
    store_f32,
    store_i8,
    vb_and,
    vb_from_bits,
    vb_load,
    vb_or,
    vb_shl,
    vb_shr,
    vb_store,
    vb_sub,
)
from edgeinfer.quant.decode_32 import IQ4_VALUES

Lanes = Any
LINE = 64  # bytes from one scale of a row to its next


@inlined
def half_from_bits(h: int) -> float:
    """A f16 as float32."""
    number: float = f32_from_f16(h)
    return number


@inlined
def half(address: int) -> float:
    return half_from_bits(load_u16(address))


@inlined
def store_scale(address: int, x: int) -> None:
    store_f32(address, f32_from_int(x))


@inlined
def nibble(packed: Lanes, which: int) -> Lanes:
    """The low (0) or high (1) half of each byte."""
    return vb_and(vb_shr(packed, 4 * which), 15)


@inlined
def look_up_iq4(packed: int, codes: int) -> None:
    """16 bytes of IQ4 indices to 32 codes: the low halves, then the high."""
    for i in range(16):
        both = load_u8(packed + i)
        store_i8(codes + i, IQ4_VALUES[both & 15])
        store_i8(codes + 16 + i, IQ4_VALUES[both >> 4])


# -- float weights ---------------------------------------------------------------------------------


@callback
def f32(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for k in range(n):
        store_f32(c + LINE * k, load_f32(row + 4 * k))


@callback
def f16(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for k in range(n):
        store_f32(c + LINE * k, half(row + 2 * k))


@callback
def bf16(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for k in range(n):
        store_f32(c + LINE * k, f32_from_bits(load_u16(row + 2 * k) << 16))


# -- blocks of 32 ----------------------------------------------------------------------------------


@inlined
def unpack_nibbles(packed: int, codes: int, bias: int) -> None:
    both = vb_load(packed)
    vb_store(codes, vb_sub(nibble(both, 0), bias))
    vb_store(codes + 16, vb_sub(nibble(both, 1), bias))


@inlined
def unpack_fives(high: int, packed: int, codes: int, bias: int) -> None:
    both = vb_load(packed)
    for i in range(2):
        fifth = vb_from_bits(load_u16(high + 2 * i), 16)
        vb_store(codes + 16 * i, vb_sub(vb_or(nibble(both, i), fifth), bias))


@callback
def q4_0(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 18 * j
        store_f32(w + LINE * j, half(block))
        unpack_nibbles(block + 2, codes + 32 * j, 8)


@callback
def q4_1(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 20 * j
        store_f32(w + LINE * j, half(block))
        store_f32(wlow + LINE * j, half(block + 2))
        unpack_nibbles(block + 4, codes + 32 * j, 0)


@callback
def q5_0(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 22 * j
        store_f32(w + LINE * j, half(block))
        unpack_fives(block + 2, block + 6, codes + 32 * j, 16)


@callback
def q5_1(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 24 * j
        store_f32(w + LINE * j, half(block))
        store_f32(wlow + LINE * j, half(block + 2))
        unpack_fives(block + 4, block + 8, codes + 32 * j, 0)


@callback
def q8_0(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 34 * j
        store_f32(w + LINE * j, half(block))
        vb_store(codes + 32 * j, vb_load(block + 2))
        vb_store(codes + 32 * j + 16, vb_load(block + 18))


@callback
def iq4_nl(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 18 * j
        store_f32(w + LINE * j, half(block))
        look_up_iq4(block + 2, codes + 32 * j)


# -- super-blocks of 256 ---------------------------------------------------------------------------


@inlined
def pair(packed: int, half_: int, field: int, part: int) -> Lanes:
    """2-bit codes of 16 elements: byte 32h + i holds elements 128h + i, +32, +64 and +96."""
    return vb_and(vb_shr(vb_load(packed + 32 * half_ + 16 * part), 2 * field), 3)


@callback
def q2_k(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 84 * j
        store_f32(w + LINE * j, half(block + 80))
        store_f32(wlow + LINE * j, half(block + 82))
        for run in range(16):
            both, line = load_u8(block + run), LINE * (16 * j + run)
            store_scale(c + line, both & 15)
            store_scale(low + line, both >> 4)
            field = pair(block + 16, run // 8, run // 2 % 4, run % 2)
            vb_store(codes + 256 * j + 16 * run, field)


@callback
def q3_k(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 110 * j
        scales = block + 96
        store_f32(w + LINE * j, half(block + 108))
        for run in range(16):
            four = (load_u8(scales + run % 8) >> (run // 8 * 4)) & 15
            two = (load_u8(scales + 8 + run % 4) >> (run // 4 * 2)) & 3
            store_scale(c + LINE * (16 * j + run), (four | two << 4) - 32)
            high = vb_and(vb_shr(vb_load(block + run % 2 * 16), run // 2), 1)
            code = vb_or(pair(block + 32, run // 8, run // 2 % 4, run % 2), vb_shl(high, 2))
            vb_store(codes + 256 * j + 16 * run, vb_sub(code, 4))


@inlined
def scales_k4(raw: int, c: int, low: int) -> None:
    """The 6-bit scales and minima of Q4_K and Q5_K: 12 bytes to 8 and 8."""
    for j in range(4):
        first, second, third = load_u8(raw + j), load_u8(raw + 4 + j), load_u8(raw + 8 + j)
        store_scale(c + LINE * j, first & 63)
        store_scale(low + LINE * j, second & 63)
        store_scale(c + LINE * (j + 4), third & 15 | first >> 6 << 4)
        store_scale(low + LINE * (j + 4), third >> 4 | second >> 6 << 4)


@callback
def q4_k(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 144 * j
        store_f32(w + LINE * j, half(block))
        store_f32(wlow + LINE * j, half(block + 2))
        scales_k4(block + 4, c + LINE * 8 * j, low + LINE * 8 * j)
        for run in range(16):
            both = vb_load(block + 16 + run // 4 * 32 + run % 2 * 16)
            vb_store(codes + 256 * j + 16 * run, nibble(both, run // 2 % 2))


@callback
def q5_k(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 176 * j
        store_f32(w + LINE * j, half(block))
        store_f32(wlow + LINE * j, half(block + 2))
        scales_k4(block + 4, c + LINE * 8 * j, low + LINE * 8 * j)
        for run in range(16):
            both = vb_load(block + 48 + run // 4 * 32 + run % 2 * 16)
            fifth = vb_and(vb_shr(vb_load(block + 16 + run % 2 * 16), run // 2), 1)
            code = vb_or(nibble(both, run // 2 % 2), vb_shl(fifth, 4))
            vb_store(codes + 256 * j + 16 * run, code)


@callback
def q6_k(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 210 * j
        store_f32(w + LINE * j, half(block + 208))
        for run in range(16):
            store_scale(c + LINE * (16 * j + run), load_s8(block + 192 + run))
            four = nibble(vb_load(block + run // 8 * 64 + run % 4 * 16), run // 4 % 2)
            two = pair(block + 128, run // 8, run // 2 % 4, run % 2)
            code = vb_sub(vb_or(four, vb_shl(two, 4)), 32)
            vb_store(codes + 256 * j + 16 * run, code)


@callback
def iq4_xs(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 136 * j
        store_f32(w + LINE * j, half(block))
        high = load_u16(block + 2)
        for sub in range(8):
            four = (load_u8(block + 4 + sub // 2) >> (sub % 2 * 4)) & 15
            six = four | (high >> (2 * sub) & 3) << 4
            store_scale(c + LINE * (8 * j + sub), six - 32)
            look_up_iq4(block + 8 + 16 * sub, codes + 256 * j + 32 * sub)
