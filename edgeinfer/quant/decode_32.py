"""Decode the formats of 32 values a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

All but Q8_0 store nibbles so that byte j holds value j (low half) and value j + 16 (high half);
the five-bit ones add a 32-bit word whose bit j is the fifth bit of value j.

    Q4_0    d f16                      16 nibble bytes      d * (q - 8)
    Q4_1    d f16  m f16               16 nibble bytes      d * q + m
    Q5_0    d f16          high u32    16 nibble bytes      d * (q - 16)
    Q5_1    d f16  m f16   high u32    16 nibble bytes      d * q + m
    Q8_0    d f16                      32 int8              d * q
    IQ4_NL  d f16                      16 nibble bytes      d * IQ4_VALUES[q]
"""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# The 16 levels of IQ4_NL and IQ4_XS, denser near zero as weights are (ggml's kvalues_iq4nl).
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)


def half(blocks: Bytes, start: int) -> Floats:
    """Return the f16 at byte `start` of each block as (n, 1) float32."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Bytes, run: int) -> Bytes:
    """Unpack (n, bytes) to (n, 2 * bytes): of each `run` bytes, the low halves, then the high."""
    grouped = packed.reshape(len(packed), -1, 1, run)
    out = np.empty((len(packed), grouped.shape[1], 2, run), np.uint8)
    np.bitwise_and(grouped[:, :, 0], 15, out=out[:, :, 0])
    np.right_shift(grouped[:, :, 0], 4, out=out[:, :, 1])
    return out.reshape(len(packed), -1)


def _fifth_bits(words: Bytes) -> Bytes:
    """Return (n, 32) uint8, 16 where the bit of the little-endian word is set."""
    return np.unpackbits(words, axis=-1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    q = nibbles(blocks[:, 2:], 16).view(np.int8)
    q -= np.int8(8)
    np.multiply(half(blocks, 0), q, out=out)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    np.multiply(half(blocks, 0), nibbles(blocks[:, 4:], 16), out=out)
    out += half(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    q = nibbles(blocks[:, 6:], 16)
    q |= _fifth_bits(blocks[:, 2:6])
    signed = q.view(np.int8)
    signed -= np.int8(16)
    np.multiply(half(blocks, 0), signed, out=out)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    q = nibbles(blocks[:, 8:], 16)
    q |= _fifth_bits(blocks[:, 4:8])
    np.multiply(half(blocks, 0), q, out=out)
    out += half(blocks, 2)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(half(blocks, 0), blocks[:, 2:].view(np.int8), out=out)


def _iq4_nl(blocks: Bytes, out: Floats) -> None:
    np.multiply(half(blocks, 0), IQ4_VALUES[nibbles(blocks[:, 2:], 16)], out=out)


DECODERS = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "IQ4_NL": _iq4_nl,
}
