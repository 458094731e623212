"""Decode the formats of 256 values a block: Q2_K to Q6_K, IQ4_XS, TQ1_0, TQ2_0.

A block holds sub-blocks of 16 or 32 values; each has a small integer scale (and, for some, an
integer minimum) that multiplies the block's f16 `d` (`dmin`). TQ1_0 and TQ2_0 have `d` alone.

    Q2_K    scales u4+u4 x16   q 2 bits x256   d f16  dmin f16        (d*s) * q - dmin*m
    Q3_K    high bit x256      q 2 bits x256   scales 6 bits x16  d   (d*(s-32)) * (q - 4 if high 0)
    Q4_K    d  dmin  scales and minima 6 bits x8+8   q 4 bits x256    (d*s) * q - dmin*m
    Q5_K    as Q4_K, then a fifth bit x256 before q                   (d*s) * q - dmin*m
    Q6_K    low 4 bits x256    high 2 bits x256  scales i8 x16  d     (d*s) * (q - 32)
    IQ4_XS  d  high 2 bits of scales u16  low 4 bits x8  q 4 bits     (d*(s-32)) * IQ4_VALUES[q]
    TQ1_0   48 bytes of 5 trits, 4 of 4   d f16                       d * (trit - 1)
    TQ2_0   q 2 bits x256                 d f16                       d * (q - 1)

A byte of trits is a fraction of 256: times 3 its whole part is the first trit, and so on with what
remains. The first 32 bytes hold five runs of 32 values, the next 16 five of 16, the last four of 4.
"""

import numpy as np
import numpy.typing as npt

from edgeinfer.quant.decode_32 import IQ4_VALUES, half, nibbles

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def _fields(packed: Bytes, run: int, bits: int) -> Bytes:
    """Unpack (n, bytes) to (n, 8 // bits * bytes): of each `run` bytes, field 0, then 1, ..."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    out = packed.reshape(len(packed), -1, 1, run) >> shifts
    out &= np.uint8((1 << bits) - 1)
    return out.reshape(len(packed), -1)


def _scale_by_run(scales: Floats, q: npt.NDArray[np.generic], out: Floats) -> Floats:
    """Fill `out` with each sub-block of q times its scale; return it as (n, sub-blocks, run)."""
    n, n_scales = scales.shape
    shaped = out.reshape(n, n_scales, -1)
    np.multiply(scales[:, :, None], q.reshape(shaped.shape), out=shaped)
    return shaped


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Unpack the 12 bytes of Q4_K and Q5_K to eight 6-bit scales and eight 6-bit minima.

    Bytes 0-3 hold scales 0-3 in their low six bits, bytes 4-7 minima 0-3; bytes 8-11 hold the low
    halves of scales 4-7 (low nibble) and minima 4-7 (high nibble), whose top two bits are the top
    two of bytes 0-3 and 4-7.
    """
    first, second, low = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (low & 15) | ((first >> 2) & 48)], axis=1)
    minima = np.concatenate([second & 63, (low >> 4) | ((second >> 2) & 48)], axis=1)
    return scales, minima


def _q2_k(blocks: Bytes, out: Floats) -> None:
    scales = half(blocks, 80) * (blocks[:, :16] & 15)
    minima = half(blocks, 82) * (blocks[:, :16] >> 4)
    shaped = _scale_by_run(scales, _fields(blocks[:, 16:80], 32, 2), out)
    shaped -= minima[:, :, None]


def _q3_k(blocks: Bytes, out: Floats) -> None:
    low = nibbles(blocks[:, 96:104], 8)
    high = _fields(blocks[:, 104:108], 4, 2)
    scales = half(blocks, 108) * ((low | (high << 4)).view(np.int8) - np.int8(32))
    # A clear bit of the mask means "subtract 4".
    q = _fields(blocks[:, :32], 32, 1)
    q ^= np.uint8(1)
    q <<= np.uint8(2)
    _scale_by_run(scales, (_fields(blocks[:, 32:96], 32, 2) - q).view(np.int8), out)


def _q4_k(blocks: Bytes, out: Floats) -> None:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    shaped = _scale_by_run(half(blocks, 0) * scales, nibbles(blocks[:, 16:], 32), out)
    shaped -= (half(blocks, 2) * minima)[:, :, None]


def _q5_k(blocks: Bytes, out: Floats) -> None:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    q = nibbles(blocks[:, 48:], 32)
    q |= _fields(blocks[:, 16:48], 32, 1) << np.uint8(4)
    shaped = _scale_by_run(half(blocks, 0) * scales, q, out)
    shaped -= (half(blocks, 2) * minima)[:, :, None]


def _q6_k(blocks: Bytes, out: Floats) -> None:
    q = nibbles(blocks[:, :128], 64)
    q |= _fields(blocks[:, 128:192], 32, 2) << np.uint8(4)
    signed = q.view(np.int8)
    signed -= np.int8(32)
    _scale_by_run(half(blocks, 208) * blocks[:, 192:208].view(np.int8), signed, out)


def _iq4_xs(blocks: Bytes, out: Floats) -> None:
    low = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8)
    low = low.reshape(-1, 8) & np.uint8(15)
    high = blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8)
    high = (high.reshape(-1, 8) & np.uint8(3)) << np.uint8(4)
    scales = half(blocks, 0) * ((low | high).view(np.int8) - np.int8(32))
    _scale_by_run(scales, IQ4_VALUES[nibbles(blocks[:, 8:], 16)], out)


def _trits(packed: Bytes, n_trits: int) -> Bytes:
    """Unpack (n, bytes) to (n, n_trits * bytes): the first trits of all bytes, the second, ..."""
    powers = np.array([3**i for i in range(n_trits)], np.uint8)
    rest = packed[:, None, :] * powers[:, None]
    return (rest.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(len(packed), -1)


def _tq1_0(blocks: Bytes, out: Floats) -> None:
    parts = [_trits(blocks[:, :32], 5), _trits(blocks[:, 32:48], 5), _trits(blocks[:, 48:52], 4)]
    q = np.concatenate(parts, axis=1).view(np.int8) - np.int8(1)
    np.multiply(half(blocks, 52), q, out=out)


def _tq2_0(blocks: Bytes, out: Floats) -> None:
    q = _fields(blocks[:, :64], 32, 2).view(np.int8) - np.int8(1)
    np.multiply(half(blocks, 64), q, out=out)


DECODERS = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
}
