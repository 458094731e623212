"""Read and write the float scales of blocks: which bytes they are, and what one is worth."""

import numpy as np

from edgeinfer.quant.formats import FORMATS

# Byte offsets of the float16 scale and min (None: no min) inside one block.
HALVES = {
    "Q4_0": (0, None),
    "Q4_1": (0, 2),
    "Q5_0": (0, None),
    "Q5_1": (0, 2),
    "Q8_0": (0, None),
    "IQ4_NL": (0, None),
    "Q2_K": (80, 82),
    "Q3_K": (108, None),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208, None),
    "IQ4_XS": (0, None),
    "TQ1_0": (52, None),
    "TQ2_0": (64, None),
    "IQ2_XXS": (0, None),
    "IQ2_XS": (0, None),
    "IQ2_S": (0, None),
    "IQ3_XXS": (0, None),
    "IQ3_S": (0, None),
    "IQ1_S": (0, None),
}
# How many times the law's w the float16 scale is.
UNITS = {"IQ2_XXS": 8, "IQ2_XS": 8, "IQ2_S": 8, "IQ3_XXS": 4, "IQ1_S": 8, "IQ1_M": 8}
INTEGER_FORMATS = (*HALVES, "IQ1_M", "MXFP4", "NVFP4")
ODD_BYTES = {"MXFP4": [0, 1, 2, 60, 128, 140], "NVFP4": [0, 0x80, 1, 7, 0x38, 0x7E, 0x7F, 0xFF]}
ODD_HALVES = [0.0, -0.0, 6e-8, -1e-6, 1.0, 3000.0]


def has_min(name: str) -> bool:
    return HALVES.get(name, (0, None))[1] is not None


def put(blocks: np.ndarray, name: str, w: np.ndarray | float, low: np.ndarray | float = 0) -> None:
    """Set the law's w, and the min, of each of the blocks (n, block bytes), as near as they go."""
    scales = np.broadcast_to(np.asarray(w, np.float64) * UNITS.get(name, 1), len(blocks))
    if name == "MXFP4":
        blocks[:, 0] = np.clip(np.rint(np.log2(np.abs(scales) + 1e-30)) + 128, 0, 255)
    elif name == "NVFP4":
        blocks[:, :4] = _ue4m3(2 * np.abs(scales))[:, None]
    elif name == "IQ1_M":
        words = blocks[:, 48:].view("<u2")
        words &= 0xFFF
        words |= _bits(scales)[:, None] << np.array([12, 8, 4, 0], np.uint16) & 0xF000
    else:
        at, at_min = HALVES[name]
        blocks[:, at : at + 2] = _bits(scales)[:, None].view(np.uint8)
        if at_min is not None:
            lows = _bits(np.broadcast_to(np.asarray(low, np.float64), len(blocks)))
            blocks[:, at_min : at_min + 2] = lows[:, None].view(np.uint8)


def put_odd(blocks: np.ndarray, name: str, rng: np.random.Generator) -> None:
    """Set scales and mins of any size: zeros, subnormals, what means nothing."""
    if name in ODD_BYTES:
        n = FORMATS[name].block_size // (32 if name == "MXFP4" else 16)
        blocks[:, :n] = rng.choice(ODD_BYTES[name], (len(blocks), n))
    else:
        w, low = rng.choice(ODD_HALVES, (2, len(blocks)))
        put(blocks, name, w / UNITS.get(name, 1), low)


def get(blocks: np.ndarray, name: str) -> np.ndarray:
    """The law's w of each of the blocks (..., block bytes); not for NVFP4, which has four."""
    if name == "MXFP4":
        return np.ldexp(np.float32(1), blocks[..., 0].astype(np.int32) - 128)
    if name == "IQ1_M":
        words = np.ascontiguousarray(blocks[..., 48:]).view("<u2").astype(np.uint32) >> 12
        bits = (words << np.array([0, 4, 8, 12], np.uint32)).sum(axis=-1).astype(np.uint16)
        return bits.view(np.float16).astype(np.float32) / np.float32(8)
    return _half(blocks, HALVES[name][0]) / np.float32(UNITS.get(name, 1))


def get_min(blocks: np.ndarray, name: str) -> np.ndarray:
    at = HALVES[name][1]
    assert at is not None
    return _half(blocks, at)


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _bits(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).view(np.uint16)


def _ue4m3(values: np.ndarray) -> np.ndarray:
    """The nearest of the 127 numbers there are."""
    codes = np.arange(127)
    exponents, mantissas = codes >> 3, codes & 7
    numbers = np.where(
        exponents == 0, mantissas / 512, (1 + mantissas / 8) * 2.0 ** (exponents - 7)
    )
    return np.abs(values[:, None] - numbers).argmin(axis=1).astype(np.uint8)
