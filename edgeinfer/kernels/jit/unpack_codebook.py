"""Unpack what unpack.py does not: codebooks, trits and 4-bit floats; the functions take the same.

Their super-blocks have a scale for every run of 16; NVFP4 leaves its float scales at `c`.
"""

from typing import Any

import numpy as np

from edgeinfer.kernels.jit.compiler import callback, inlined
from edgeinfer.kernels.jit.unpack import LINE, half, half_from_bits, pair, store_scale
from edgeinfer.kernels.jit.verbs import (
    f32_from_bits,
    load_i32,
    load_u8,
    load_u16,
    store_f32,
    store_i8,
    vb_store,
    vb_sub,
)
from edgeinfer.quant.decode_codebook import SIGNS_OF_7
from edgeinfer.quant.decode_fp4 import FP4_VALUES, HALF_UE4M3
from edgeinfer.quant.grids import grid

Table = Any

IQ2_XXS, IQ2_XS, IQ2_S = grid("IQ2_XXS"), grid("IQ2_XS"), grid("IQ2_S")
IQ3_XXS, IQ3_S, IQ1 = grid("IQ3_XXS"), grid("IQ3_S"), grid("IQ1")
POWERS = np.array([1, 3, 9, 27, 81])
EIGHTH, QUARTER = np.float32(0.125), np.float32(0.25)


@inlined
def signed(point: Table, signs: int, codes: int) -> None:
    """The coordinates of a point; a bit a coordinate, set: negative."""
    for k in range(len(point)):
        store_i8(codes + k, -point[k] if signs >> k & 1 != 0 else point[k])


@inlined
def shifted(index: int, is_down: int, codes: int) -> None:
    shift = -1 if is_down != 0 else 1
    for k in range(8):
        store_i8(codes + k, IQ1[index, k] + shift)


@inlined
def store_odd(c: int, run: int, s: int) -> None:
    store_scale(c + LINE * run, 2 * s + 1)


@inlined
def store_odd_twice(c: int, sub: int, s: int) -> None:
    store_odd(c, 2 * sub, s)
    store_odd(c, 2 * sub + 1, s)


@inlined
def low_then_high(packed: int, i: int) -> int:
    """Nibble i."""
    field: int = load_u8(packed + i // 2) >> (i % 2 * 4) & 15
    return field


# -- codebooks -------------------------------------------------------------------------------------


@callback
def iq2_xxs(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 66 * j
        store_f32(w + LINE * j, half(block) * EIGHTH)
        for sub in range(8):
            at, to = block + 2 + 8 * sub, codes + 256 * j + 32 * sub
            word = load_i32(at + 4)
            store_odd_twice(c, 8 * j + sub, word >> 28 & 15)
            for i in range(4):
                point = IQ2_XXS[load_u8(at + i)]
                signed(point, SIGNS_OF_7[word >> (7 * i) & 127], to + 8 * i)


@callback
def iq2_xs(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 74 * j
        store_f32(w + LINE * j, half(block) * EIGHTH)
        for i in range(32):
            word = load_u16(block + 2 + 2 * i)
            signed(IQ2_XS[word & 511], SIGNS_OF_7[word >> 9], codes + 256 * j + 8 * i)
        for run in range(16):
            store_odd(c, 16 * j + run, low_then_high(block + 66, run))


@callback
def iq2_s(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 82 * j
        store_f32(w + LINE * j, half(block) * EIGHTH)
        for i in range(32):
            high = load_u8(block + 66 + i // 4) >> (i % 4 * 2) & 3
            point = IQ2_S[load_u8(block + 2 + i) | high << 8]
            signed(point, load_u8(block + 34 + i), codes + 256 * j + 8 * i)
        for run in range(16):
            store_odd(c, 16 * j + run, low_then_high(block + 74, run))


@callback
def iq3_xxs(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 98 * j
        store_f32(w + LINE * j, half(block) * QUARTER)
        for sub in range(8):
            word, to = load_i32(block + 66 + 4 * sub), codes + 256 * j + 32 * sub
            store_odd_twice(c, 8 * j + sub, word >> 28 & 15)
            for i in range(8):
                signs = SIGNS_OF_7[word >> (i // 2 * 7) & 127] >> (i % 2 * 4)
                signed(IQ3_XXS[load_u8(block + 2 + 8 * sub + i)], signs, to + 4 * i)


@callback
def iq3_s(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 110 * j
        store_f32(w + LINE * j, half(block))
        for i in range(64):
            high = load_u8(block + 66 + i // 8) >> (i % 8) & 1
            signs = low_then_high(block + 74, i)
            point = IQ3_S[load_u8(block + 2 + i) | high << 8]
            signed(point, signs, codes + 256 * j + 4 * i)
        for sub in range(8):
            store_odd_twice(c, 8 * j + sub, low_then_high(block + 106, sub))


@callback
def iq1_s(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 50 * j
        store_f32(w + LINE * j, half(block) * EIGHTH)
        for sub in range(8):
            word, to = load_u16(block + 34 + 2 * sub), codes + 256 * j + 32 * sub
            store_odd_twice(c, 8 * j + sub, word >> 12 & 7)
            for i in range(4):
                index = load_u8(block + 2 + 4 * sub + i) | (word >> (3 * i) & 7) << 8
                shifted(index, word >> 15, to + 8 * i)


@inlined
def spread_half(words: int) -> float:
    """The f16 whose nibbles are the top ones of four words, lowest first."""
    h = 0
    for i in range(4):
        h |= load_u16(words + 2 * i) >> 12 << (4 * i)
    return half_from_bits(h)


@callback
def iq1_m(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 56 * j
        store_f32(w + LINE * j, spread_half(block + 48) * EIGHTH)
        for i in range(32):
            high = low_then_high(block + 32, i)
            shifted(load_u8(block + i) | (high & 7) << 8, high & 8, codes + 256 * j + 8 * i)
        for run in range(16):
            store_odd(c, 16 * j + run, load_u16(block + 48 + run // 4 * 2) >> (run % 4 * 3) & 7)


# -- trits -----------------------------------------------------------------------------------------


@inlined
def trits(packed: int, n_bytes: int, n_trits: int, codes: int) -> None:
    for t in range(n_trits):
        for i in range(n_bytes):
            rest = load_u8(packed + i) * POWERS[t] & 255
            store_i8(codes + n_bytes * t + i, (rest * 3 >> 8) - 1)


@callback
def tq1_0(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block, to = row + 54 * j, codes + 256 * j
        store_f32(w + LINE * j, half(block + 52))
        for run in range(16):
            store_scale(c + LINE * (16 * j + run), 1)
        trits(block, 32, 5, to)
        trits(block + 32, 16, 5, to + 160)
        trits(block + 48, 4, 4, to + 240)


@callback
def tq2_0(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 256):
        block = row + 66 * j
        store_f32(w + LINE * j, half(block + 64))
        for run in range(16):
            store_scale(c + LINE * (16 * j + run), 1)
            code = vb_sub(pair(block, run // 8, run // 2 % 4, run % 2), 1)
            vb_store(codes + 256 * j + 16 * run, code)


# -- 4-bit floats ----------------------------------------------------------------------------------


@inlined
def look_up_fp4(packed: int, n_bytes: int, codes: int) -> None:
    """The low halves, then the high."""
    for i in range(n_bytes):
        both = load_u8(packed + i)
        store_i8(codes + i, FP4_VALUES[both & 15])
        store_i8(codes + n_bytes + i, FP4_VALUES[both >> 4])


@callback
def mxfp4(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 32):
        block = row + 17 * j
        e = load_u8(block)
        store_f32(w + LINE * j, f32_from_bits((e - 1) << 23 if e > 1 else 0x200000 << e))
        look_up_fp4(block + 1, 16, codes + 32 * j)


@callback
def nvfp4(row: int, n: int, codes: int, c: int, low: int, w: int, wlow: int) -> None:
    for j in range(n // 64):
        block = row + 36 * j
        for run in range(4):
            store_f32(c + LINE * (4 * j + run), HALF_UE4M3[load_u8(block + run)])
            look_up_fp4(block + 4 + 8 * run, 8, codes + 64 * j + 16 * run)
