"""Decode the formats of 256 values whose codes are points of a codebook: IQ1, IQ2 and IQ3.

A point is 8 values, or 4 for IQ3; IQ2 and IQ3 hold magnitudes and store the signs apart. Runs of
16 or 32 values have a small odd scale, c = 2*s + 1, beside the block's f16 `d`. Where the signs of
8 values take 7 bits, an even number of them is negative.

    IQ2_XXS  d  8 x (4 indices u8, u32: 4 signs of 7 bits, s 4 bits)            (d/8*c) * +-grid
    IQ2_XS   d  32 x u16 (index 9 bits, signs 7 bits)   s 4 bits x16            (d/8*c) * +-grid
    IQ2_S    d  32 low bytes of indices  32 signs  high 2 bits x32  s 4 bits x16 (d/8*c) * +-grid
    IQ3_XXS  d  64 indices u8  8 x u32 as IQ2_XXS                               (d/4*c) * +-grid
    IQ3_S    d  64 low bytes  high bit x64  32 signs  s 4 bits x8                 (d*c) * +-grid
    IQ1_S    d  32 low bytes  8 x u16 (4 high 3 bits, s 3 bits, sign of the shift)
    IQ1_M    32 low bytes  32 x 4 bits (high 3 bits, sign of the shift)  4 x u16 (4 s of 3 bits;
             the top nibbles of all four are d)                         (d/8*c) * (grid +- 1)
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.quant.decode_32 import half
from edgeinfer.quant.grids import grid

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Fields = npt.NDArray[np.integer[Any]]

# The eighth sign of each combination of seven makes the number of negative ones even.
SIGNS_OF_7 = np.array([s | (s.bit_count() % 2) << 7 for s in range(128)], np.uint8)

_EIGHTH, _QUARTER = np.float32(0.125), np.float32(0.25)


def _words(packed: Bytes, kind: str) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(packed).view(kind).astype(np.uint32)


def _fields(words: npt.NDArray[np.generic], bits: int, shifts: tuple[int, ...]) -> Fields:
    """Cut (n, words) into (n, words * len(shifts)) fields of `bits` bits."""
    cut = words.astype(np.uint32)[:, :, None] >> np.array(shifts, np.uint32)
    return (cut & np.uint32((1 << bits) - 1)).reshape(len(words), -1)


def _points(name: str, indices: Fields) -> Codes:
    return grid(name)[indices].reshape(len(indices), 256)


def _signed(points: Codes, signs: Bytes) -> Codes:
    """Negate the magnitudes (n, 256) whose bit, lowest first, is set in `signs` (n, 32)."""
    negative = np.unpackbits(signs, axis=-1, bitorder="little").view(np.int8)
    return (points ^ -negative) + negative


def _fill(w: Floats, s: Fields, codes: Codes, out: Floats) -> None:
    """Fill `out` with w * (2*s + 1) * codes; w (n, 1), s (n, sub-blocks). Nothing here rounds."""
    scales = w * (2 * s + 1).astype(np.float32)
    np.multiply(
        scales[:, :, None],
        codes.reshape(*scales.shape, -1),
        out=out.reshape(*scales.shape, -1),
    )


def _iq2_xxs(blocks: Bytes, out: Floats) -> None:
    pairs = _words(blocks[:, 2:], "<u4")
    signs = SIGNS_OF_7[_fields(pairs[:, 1::2], 7, (0, 7, 14, 21))]
    codes = _signed(_points("IQ2_XXS", _fields(pairs[:, ::2], 8, (0, 8, 16, 24))), signs)
    _fill(half(blocks, 0) * _EIGHTH, pairs[:, 1::2] >> 28, codes, out)


def _iq2_xs(blocks: Bytes, out: Floats) -> None:
    words = _words(blocks[:, 2:66], "<u2")
    codes = _signed(_points("IQ2_XS", words & 511), SIGNS_OF_7[words >> 9])
    _fill(half(blocks, 0) * _EIGHTH, _fields(blocks[:, 66:], 4, (0, 4)), codes, out)


def _iq2_s(blocks: Bytes, out: Floats) -> None:
    indices = blocks[:, 2:34] | _fields(blocks[:, 66:74], 2, (0, 2, 4, 6)) << 8
    codes = _signed(_points("IQ2_S", indices), blocks[:, 34:66])
    _fill(half(blocks, 0) * _EIGHTH, _fields(blocks[:, 74:], 4, (0, 4)), codes, out)


def _iq3_xxs(blocks: Bytes, out: Floats) -> None:
    words = _words(blocks[:, 66:], "<u4")
    signs = SIGNS_OF_7[_fields(words, 7, (0, 7, 14, 21))]
    codes = _signed(_points("IQ3_XXS", blocks[:, 2:66].astype(np.uint32)), signs)
    _fill(half(blocks, 0) * _QUARTER, words >> 28, codes, out)


def _iq3_s(blocks: Bytes, out: Floats) -> None:
    indices = blocks[:, 2:66] | _fields(blocks[:, 66:74], 1, tuple(range(8))) << 8
    codes = _signed(_points("IQ3_S", indices), blocks[:, 74:106])
    _fill(half(blocks, 0), _fields(blocks[:, 106:], 4, (0, 4)), codes, out)


def _shifted(low: Bytes, high: Fields, is_down: Fields) -> Codes:
    """Look IQ1's points up, shifted by one eighth: `is_down` (n, 32 or fewer) says where down."""
    points = _points("IQ1", low | high << 8)
    shift = 1 - 2 * is_down.astype(np.int8)
    return points + np.repeat(shift, 256 // shift.shape[1], axis=1)


def _iq1_s(blocks: Bytes, out: Floats) -> None:
    words = _words(blocks[:, 34:], "<u2")
    codes = _shifted(blocks[:, 2:34], _fields(words, 3, (0, 3, 6, 9)), words >> 15)
    _fill(half(blocks, 0) * _EIGHTH, words >> 12 & 7, codes, out)


def _iq1_m(blocks: Bytes, out: Floats) -> None:
    quads = _fields(blocks[:, 32:48], 4, (0, 4))
    codes = _shifted(blocks[:, :32], quads & 7, quads >> 3)
    words = _words(blocks[:, 48:], "<u2")
    d = ((words >> 12) << np.array([0, 4, 8, 12], np.uint32)).sum(axis=1, keepdims=True)
    w = d.astype(np.uint16).view(np.float16).astype(np.float32) * _EIGHTH
    _fill(w, _fields(words, 3, (0, 3, 6, 9)), codes, out)


DECODERS = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}
