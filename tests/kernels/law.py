"""The matmul law of csrc/formats.h in NumPy, written from its text: the oracle of the C kernels."""

from dataclasses import dataclass

import numpy as np

from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels import block_scales

FLOAT_FORMATS = ("F32", "F16", "BF16")


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a*b + c, float32, rounded once: the product is exact in float64, and rounding the sum to odd
    there (Boldo and Melquiond 2008) makes the second rounding, to float32, the right one."""
    product, c64 = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c64
    back = total - product
    error = (product - (total - back)) + (c64 - back)
    is_even = (total.view(np.int64) & 1) == 0
    toward = np.nextafter(total, np.copysign(np.inf, error))
    return np.where((error != 0) & is_even, toward, total).astype(np.float32)


@dataclass(frozen=True)
class Activations:
    """x (n, K) quantized per run of 16: q int64 (n, K), 8 bits or, fine, 15; d, sums (n, K/16) and
    ds (n, K/32) float32."""

    q: np.ndarray
    d: np.ndarray
    sums: np.ndarray
    ds: np.ndarray


def quantize(x: np.ndarray, fine: bool) -> Activations:
    most = np.float32(127 * 128 if fine else 127)
    runs = x.reshape(len(x), -1, 16)
    amax = np.abs(runs).max(axis=2)
    d = amax / most
    usable = amax >= np.float32(2.0**-112)
    inverse = most / np.where(usable, amax, np.float32(1))
    q = np.rint(runs * np.where(usable, inverse, np.float32(0))[..., None]).astype(np.int64)
    sums = q.sum(axis=2).astype(np.float32)
    each = d * sums
    return Activations(q.reshape(x.shape), d, sums, each[:, ::2] + each[:, 1::2])


def _blocks(rows: np.ndarray, name: str) -> np.ndarray:
    """(n_rows, blocks, block bytes)"""
    return rows.reshape(len(rows), -1, FORMATS[name].block_bytes)


def _with_scales(rows: np.ndarray, name: str, scale: float, low: float) -> np.ndarray:
    """Decode rows as if every block's scale and min were these: leaves the integers bare."""
    fmt = FORMATS[name]
    blocks = rows.reshape(-1, fmt.block_bytes).copy()
    block_scales.put(blocks, name, scale, low)
    n_columns = rows.shape[1] // fmt.block_bytes * fmt.block_size
    tensor = Tensor("w", (len(rows), n_columns), fmt, blocks.ravel())
    return decode(tensor).astype(np.int64)


def matmul(rows: np.ndarray, name: str, x: np.ndarray, fine: bool = False) -> np.ndarray:
    """File rows (n_rows, row bytes) uint8 times x (n_tokens, K): y (n_tokens, n_rows) float32."""
    if name in FLOAT_FORMATS:
        fmt = FORMATS[name]
        shape = (len(rows), rows.shape[1] // fmt.block_bytes)
        w = decode(Tensor("w", shape, fmt, rows.ravel()))
        acc = np.zeros((len(x), len(rows)), np.float32)
        for k in range(w.shape[1]):
            acc = fma(w[None, :, k], x[:, None, k], acc)
        return acc
    acts = quantize(x, fine)
    has_min = block_scales.has_min(name)
    is_super = FORMATS[name].block_size == 256
    # a min is added in blocks of 32 and subtracted in super-blocks: the sign that leaves it bare
    mins = _with_scales(rows, name, 0.0, -1.0 if is_super else 1.0) if has_min else None
    codes = _with_scales(rows, name, 1.0, 0.0)
    if name == "NVFP4":
        return _run_steps(rows, name, codes, acts)
    if is_super:
        return _super_steps(rows, name, codes, mins, acts)
    return _block_steps(rows, name, codes, acts)


def _dots(codes: np.ndarray, acts: Activations, run: int) -> np.ndarray:
    """Exact integer dots of one run of 16, (n_tokens, n_rows) as float32."""
    at = slice(16 * run, 16 * run + 16)
    return (acts.q[:, at] @ codes[:, at].T).astype(np.float32)


def _block_steps(rows: np.ndarray, name: str, codes: np.ndarray, acts: Activations) -> np.ndarray:
    w = block_scales.get(_blocks(rows, name), name)
    acc = np.zeros((len(acts.q), len(rows)), np.float32)
    for j in range(w.shape[1]):
        first = _dots(codes, acts, 2 * j) * acts.d[:, None, 2 * j]
        t = fma(_dots(codes, acts, 2 * j + 1), acts.d[:, None, 2 * j + 1], first)
        acc = fma(t, w[None, :, j], acc)
        if block_scales.has_min(name):
            low = block_scales.get_min(_blocks(rows, name), name)
            acc = fma(low[None, :, j], acts.ds[:, None, j], acc)
    return acc


def _run_steps(rows: np.ndarray, name: str, codes: np.ndarray, acts: Activations) -> np.ndarray:
    """NVFP4: a float scale for every run of 16, seen where all codes are made 1."""
    blocks = _blocks(rows, name).copy()
    blocks[:, :, 4:] = 0x11
    ones = Tensor("w", (len(rows), codes.shape[1]), FORMATS[name], blocks.ravel())
    w = decode(ones)[:, ::16]
    acc = np.zeros((len(acts.q), len(rows)), np.float32)
    for r in range(w.shape[1]):
        acc = fma(_dots(codes, acts, r) * acts.d[:, None, r], w[None, :, r], acc)
    return acc


# Elements of a sub-block, where it is not 16.
SUB_BLOCK = {"Q4_K": 32, "Q5_K": 32, "IQ4_XS": 32}

# Per super-block format: the bytes to change, the bits to keep of them, those to set, so that every
# code is alike; and the integer it then is, if not 1. Codebooks: point 0, whose coordinates are the
# lowest, all positive, shifted up.
ALIKE: dict[str, list[tuple[slice, int | list[int], int]]] = {
    "Q2_K": [(slice(16, 80), 0, 0x55)],
    "Q3_K": [(slice(0, 32), 0, 0xFF), (slice(32, 96), 0, 0x55)],
    "Q4_K": [(slice(16, 144), 0, 0x11)],
    "Q5_K": [(slice(16, 48), 0, 0), (slice(48, 176), 0, 0x11)],
    "Q6_K": [(slice(0, 128), 0, 0x11), (slice(128, 192), 0, 0xAA)],
    "IQ4_XS": [(slice(8, 136), 0, 0x88)],
    "TQ1_0": [(slice(0, 52), 0, 0xFF)],
    "TQ2_0": [(slice(0, 64), 0, 0xAA)],
    "IQ2_XXS": [(slice(2, 66), [0, 0, 0, 0, 0, 0, 0, 0xF0] * 8, 0)],
    "IQ2_XS": [(slice(2, 66), 0, 0)],
    "IQ2_S": [(slice(2, 74), 0, 0)],
    "IQ3_XXS": [(slice(2, 66), 0, 0), (slice(66, 98), [0, 0, 0, 0xF0] * 8, 0)],
    "IQ3_S": [(slice(2, 106), 0, 0)],
    "IQ1_S": [(slice(2, 34), 0, 0), (slice(34, 50), [0, 0x70] * 8, 0)],
    "IQ1_M": [(slice(0, 48), 0, 0)],
}
ALIKE_CODE = {"IQ2_XXS": 8, "IQ2_XS": 8, "IQ2_S": 8, "IQ3_XXS": 4, "IQ1_S": -7, "IQ1_M": -7}


def _sub_scales(rows: np.ndarray, name: str) -> np.ndarray:
    """The integer scale of every sub-block, (n_rows, K/sub): decode with all codes made alike."""
    blocks = rows.reshape(-1, FORMATS[name].block_bytes).copy()
    for at, keep, value in ALIKE[name]:
        blocks[:, at] = blocks[:, at] & np.array(keep, np.uint8) | np.uint8(value)
    alike = _with_scales(blocks.reshape(rows.shape), name, 1.0, 0.0)
    return alike[:, :: SUB_BLOCK.get(name, 16)] // ALIKE_CODE.get(name, 1)


def _super_steps(
    rows: np.ndarray, name: str, codes: np.ndarray, mins: np.ndarray | None, acts: Activations
) -> np.ndarray:
    w, sub = block_scales.get(_blocks(rows, name), name), SUB_BLOCK.get(name, 16)
    scales = _sub_scales(rows, name)
    bare = codes // np.where(scales == 0, 1, scales).repeat(sub, axis=1)
    acc = np.zeros((len(acts.q), len(rows)), np.float32)
    for block in range(w.shape[1]):
        u, v = np.zeros_like(acc), np.zeros_like(acc)
        for s in range(256 // sub * block, 256 // sub * (block + 1)):
            for run in range(s * sub // 16, (s + 1) * sub // 16):
                scaled = _dots(bare, acts, run) * scales[None, :, s].astype(np.float32)
                u = fma(scaled, acts.d[:, None, run], u)
            if mins is not None:
                low = mins[None, :, sub * s].astype(np.float32)
                ds = acts.ds[:, s] if sub == 32 else acts.d[:, s] * acts.sums[:, s]
                v = fma(low, ds[:, None], v)
        acc = fma(u, w[None, :, block], acc)
        if mins is not None:
            acc = fma(-v, block_scales.get_min(_blocks(rows, name), name)[None, :, block], acc)
    return acc
