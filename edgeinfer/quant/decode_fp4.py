"""Decode the formats of 4-bit floats: MXFP4 (32 values a block) and NVFP4 (64).

A code is E2M1: a sign, two bits of exponent, one of mantissa. FP4_VALUES are twice its values, so
that they are integers; the scales are halved in turn.

    MXFP4  e u8: the scale 2**(e - 127)     16 nibble bytes       2**(e - 128) * FP4_VALUES[q]
    NVFP4  4 scales UE4M3, each of 16 values  4 x 8 nibble bytes  (scale/2) * FP4_VALUES[q]

UE4M3 is unsigned here: its top bit means nothing, and 0x7F, the NaN of E4M3, is zero.
"""

import numpy as np
import numpy.typing as npt

from edgeinfer.quant.decode_32 import nibbles

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


_SCALES = np.arange(256)
_EXPONENTS, _MANTISSAS = _SCALES >> 3 & 15, _SCALES & 7
# Half of the scale: 2**-10 is the last place of the subnormal ones.
HALF_UE4M3: Floats = np.where(
    _EXPONENTS == 0, _MANTISSAS * 2.0**-10, (8 + _MANTISSAS) * 2.0 ** (_EXPONENTS - 11)
).astype(np.float32)
HALF_UE4M3[0x7F] = 0


def _mxfp4(blocks: Bytes, out: Floats) -> None:
    scales = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    np.multiply(scales, FP4_VALUES[nibbles(blocks[:, 1:], 16)], out=out)


def _nvfp4(blocks: Bytes, out: Floats) -> None:
    codes = FP4_VALUES[nibbles(blocks[:, 4:], 8)].reshape(-1, 4, 16)
    np.multiply(HALF_UE4M3[blocks[:, :4]][:, :, None], codes, out=out.reshape(-1, 4, 16))


DECODERS = {"MXFP4": _mxfp4, "NVFP4": _nvfp4}
