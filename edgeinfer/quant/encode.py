"""Encode rows of float32 to the formats without sub-blocks, with NumPy: the oracle of the encoders.

Each block of 32 tries some scales around the one that just covers its values, solves for the best
scale of the codes that gives (least squares, weighted), and keeps what leaves the least error.
Where no importance is known, formats that clip the largest values weigh these a little more.
Knows no file, and none of the formats of 256 values: `kernels.native.encode` has those as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError, NonFiniteError
from edgeinfer.quant.decode_32 import IQ4_VALUES
from edgeinfer.quant.decode_fp4 import FP4_VALUES
from edgeinfer.quant.formats import FORMATS

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_F16_MOST = 65504.0
# The largest magnitude that a format can hold; scales are f16.
_MOST = {
    "F32": float(np.finfo(np.float32).max),
    "F16": float(np.nextafter(np.float32(65520), np.float32(0))),
    "BF16": float(np.uint32(0x7F7F7FFF).view(np.float32)),
    "MXFP4": 12 * 2.0**124,  # twice as much, the next code, is no float32
}
# How much more an error of a large value counts (csrc/ops/encode_panel_template.h, weigh).
_EMPHASIS = {"Q4_0": 0.1, "Q5_0": 0.1}
_CHUNK = 1 << 16  # values encoded at a time


def encode(
    format_name: str,
    rows: Floats,
    *,
    importance: Floats | None = None,
    n_threads: int = 1,
) -> Bytes:
    """Encode `rows`, (n_rows, n_columns) float32 and contiguous, to (n_rows, row_bytes).

    Args:
        format_name: one of ENCODERS.
        rows: n_columns is a multiple of the format's block size.
        importance: (n_columns,), how much a squared error in each column counts; None: alike.
        n_threads: at least 1; this function always uses one.

    Raises:
        InvalidParameterError: an argument is not as said, or a value too large for the format.
        NonFiniteError: a value is NaN or infinite.
    """
    check(format_name, rows, n_threads, tuple(ENCODERS))
    weights = weights_of(importance, rows.shape[1])
    refuse(format_name, rows)
    fmt, encoder = FORMATS[format_name], ENCODERS[format_name]
    out = np.empty((len(rows), fmt.row_bytes(rows.shape[1])), np.uint8)
    step = max(1, _CHUNK // rows.shape[1])
    for row in range(0, len(rows), step):
        chosen = rows[row : row + step]
        blocks = chosen.reshape(-1, fmt.block_size)
        if weights is None:
            w = _weights_without_importance(blocks, _EMPHASIS.get(format_name, 0))
        else:
            w = np.tile(weights, len(chosen)).reshape(blocks.shape)
        made = encoder(blocks, w)
        out[row : row + step] = made.reshape(len(chosen), -1)
    return out


def check(format_name: str, rows: Floats, n_threads: int, known: Sequence[str]) -> None:
    """Raise InvalidParameterError unless `encode` can take these arguments."""
    if format_name not in known:
        raise InvalidParameterError(
            f"encode: format: found {format_name!r} (need one of {', '.join(known)})"
        )
    if rows.dtype != np.float32 or rows.ndim != 2 or not rows.flags.c_contiguous:
        raise InvalidParameterError(
            f"encode: rows: found {rows.dtype} with {rows.ndim} axes"
            f"{'' if rows.flags.c_contiguous else ', not contiguous'} "
            "(need contiguous float32 with two)"
        )
    block = FORMATS[format_name].block_size
    if rows.shape[1] == 0 or rows.shape[1] % block:
        raise InvalidParameterError(
            f"encode: columns: found {rows.shape[1]} (need a positive multiple of {block}, "
            f"the block size of {format_name})"
        )
    if n_threads < 1:
        raise InvalidParameterError(f"encode: n_threads: found {n_threads} (need at least 1)")


def weights_of(importance: Floats | None, n_columns: int) -> Floats | None:
    """Return the importance with a mean of 1, and a floor under columns that never mattered.

    Raises InvalidParameterError unless it is (n_columns,), finite and nowhere below 0.
    """
    if importance is None:
        return None
    if importance.shape != (n_columns,):
        raise InvalidParameterError(
            f"encode: importance: found shape {importance.shape} (need ({n_columns},))"
        )
    wrong = np.flatnonzero(~(np.isfinite(importance) & (importance >= 0)))
    if len(wrong):
        raise InvalidParameterError(
            f"encode: importance: found {importance[wrong[0]]} in column {wrong[0]} "
            "(need finite numbers from 0 on)"
        )
    mean = float(importance.mean(dtype=np.float64))
    if mean == 0:
        return None
    scaled = np.maximum(importance.astype(np.float64) / mean, 2.0**-20)
    return np.ascontiguousarray(scaled, np.float32)


def _weights_without_importance(blocks: Floats, emphasis: float) -> Floats:
    squares = np.square(blocks, dtype=np.float64)
    mean = squares.mean(axis=1, keepdims=True)
    return (1 + emphasis * squares / np.where(mean > 0, mean, 1)).astype(np.float32)


def refuse(format_name: str, rows: Floats) -> None:
    """Raise the error that names the first value `format_name` cannot hold, if there is one.

    NonFiniteError for NaN and infinity, InvalidParameterError for a number that is too large.
    """
    most = _MOST.get(format_name, _F16_MOST)
    for row, values in enumerate(rows):
        wrong = np.flatnonzero(~(np.abs(values) <= most))
        if not len(wrong):
            continue
        column = int(wrong[0])
        where = f"encode {format_name}: row {row}, column {column}: found {values[column]:.6g}"
        if not np.isfinite(values[column]):
            raise NonFiniteError(f"{where} (need a finite number); the model is damaged")
        raise InvalidParameterError(
            f"{where} (need at most {most:g} in magnitude); choose BF16 or F32 for this tensor"
        )


# (blocks (n, block_size), weights of the same shape) -> (n, block_bytes)
Encoder = Callable[[Floats, Floats], Bytes]


def _f32(blocks: Floats, weights: Floats) -> Bytes:
    return blocks.view(np.uint8)


def _f16(blocks: Floats, weights: Floats) -> Bytes:
    return blocks.astype("<f2").view(np.uint8)


def _bf16(blocks: Floats, weights: Floats) -> Bytes:
    bits = blocks.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype("<u2").view(np.uint8)


@dataclass(frozen=True, slots=True)
class _Levels:
    """What codes stand for, and where the largest value of a block is put at first."""

    values: npt.NDArray[np.float32]  # ascending
    targets: npt.NDArray[np.float32]

    def nearest(self, t: Floats) -> npt.NDArray[np.int64]:
        """Return the code, an index into `values`, of the value nearest to each t."""
        return np.searchsorted((self.values[1:] + self.values[:-1]) / 2, t, side="right")


def _inverse(x: Floats) -> Floats:
    usable = np.abs(x) >= np.float32(2.0**-100)
    inverse: Floats = np.where(usable, 1 / np.where(usable, x, np.float32(1)), np.float32(0))
    return inverse


def _scale(x: Floats) -> tuple[Floats, Bytes]:
    """Round scales to f16; one too small for any becomes the least, whose codes may be near."""
    return _half(np.where(x == 0, x, np.copysign(np.maximum(np.abs(x), 2.0**-24), x)))


def _half(x: Floats) -> tuple[Floats, Bytes]:
    """Round (n, 1) to f16; return the numbers and their bytes, (n, 2)."""
    bits = np.clip(x, -_F16_MOST, _F16_MOST).astype("<f2")
    return bits.astype(np.float32), bits.view(np.uint8)


def _find_scale(x: Floats, w: Floats, levels: _Levels) -> Floats:
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    unit, best = _inverse(largest), np.zeros_like(largest)
    gain = np.zeros_like(largest)

    def attempt(inverse: Floats) -> None:
        value = levels.values[levels.nearest(x * inverse)]
        products = (w * x * value).sum(axis=1, keepdims=True)
        scale = products * _inverse((w * value * value).sum(axis=1, keepdims=True))
        better = scale * products >= gain
        best[better], gain[better] = scale[better], (scale * products)[better]

    for target in levels.targets:
        attempt(unit * target)
    attempt(_inverse(best))
    return best


def _find_fine_scale(x: Floats, w: Floats, levels: _Levels) -> Floats:
    """Compare the scales as f16 holds them: the best of many codes is no matter of solving.

    Subnormal ones are rounded by more than a little: the f16 above the first is tried, too.
    """
    largest = np.abs(x).max(axis=1, keepdims=True)
    best: Floats = np.zeros_like(largest)
    least = np.full_like(largest, np.inf)
    first = largest / levels.targets[0]
    above = first + np.where(first < 2.0**-14, np.float32(2.0**-24), 0)
    for guess in (*(largest / target for target in levels.targets), above):
        scale, _ = _scale(guess)
        rest = x - scale * levels.values[levels.nearest(x * _inverse(scale))]
        error = (w * rest * rest).sum(axis=1, keepdims=True)
        best = np.where(error < least, scale, best)
        least = np.minimum(error, least)
    return best


def _find_min(x: Floats, w: Floats, levels: _Levels) -> tuple[Floats, Floats]:
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    unit, scale, base = _inverse(high - low), np.zeros_like(low), np.zeros_like(low)
    least = np.full_like(low, np.inf)
    sw, sx = w.sum(axis=1, keepdims=True), (w * x).sum(axis=1, keepdims=True)

    def attempt(inverse: Floats, start: Floats) -> None:
        value = levels.values[levels.nearest((x - start) * inverse)]
        mean, at = sx / sw, (w * value).sum(axis=1, keepdims=True) / sw
        by = _inverse((w * (value - at) ** 2).sum(axis=1, keepdims=True))
        found = (w * (value - at) * (x - mean)).sum(axis=1, keepdims=True) * by
        level = mean - found * at
        error = (w * (x - found * value - level) ** 2).sum(axis=1, keepdims=True)
        better = error <= least
        scale[better], base[better], least[better] = found[better], level[better], error[better]

    for target in levels.targets:
        attempt(unit * target, low)
    attempt(_inverse(scale), base)
    return scale, base


def _nibbles(codes: npt.NDArray[np.int64]) -> Bytes:
    return ((codes[:, :16] & 15) | (codes[:, 16:] & 15) << 4).astype(np.uint8)


def _fifth_bits(codes: npt.NDArray[np.int64]) -> Bytes:
    return np.packbits((codes >> 4).astype(np.uint8), axis=1, bitorder="little")


def _scaled(
    levels: _Levels,
    pack: Callable[[npt.NDArray[np.int64]], list[Bytes]],
    find: Callable[[Floats, Floats, _Levels], Floats] = _find_scale,
) -> Encoder:
    """Make the encoder of blocks with an f16 scale."""

    def encode_blocks(x: Floats, w: Floats) -> Bytes:
        scale, bits = _scale(find(x, w, levels))
        return np.concatenate([bits, *pack(levels.nearest(x * _inverse(scale)))], axis=1)

    return encode_blocks


def _above_min(levels: _Levels, pack: Callable[[npt.NDArray[np.int64]], list[Bytes]]) -> Encoder:
    """Make the encoder of blocks with an f16 scale and minimum."""

    def encode_blocks(x: Floats, w: Floats) -> Bytes:
        found, base = _find_min(x, w, levels)
        (scale, bits), (low, low_bits) = _scale(found), _half(base)
        codes = levels.nearest((x - low) * _inverse(scale))
        return np.concatenate([bits, low_bits, *pack(codes)], axis=1)

    return encode_blocks


def _mxfp4(x: Floats, w: Floats) -> Bytes:
    magnitudes = FP4_VALUES[:8].astype(np.float32)
    levels = _Levels(magnitudes, magnitudes)
    top = np.abs(x).max(axis=1, keepdims=True).view(np.uint32) >> np.uint32(23)
    middle = np.maximum(top.astype(np.int32) - 2, 3)
    least, power = np.full(middle.shape, np.inf, np.float32), middle
    for step in (-1, 0, 1):
        t = np.abs(np.ldexp(x, 128 - middle - step))
        error = (w * (t - magnitudes[levels.nearest(t)]) ** 2).sum(axis=1, keepdims=True)
        error *= np.float32(4.0**step)
        power = np.where(error < least, middle + step, power)
        least = np.minimum(error, least)
    t = np.ldexp(x, 128 - power)
    codes = levels.nearest(np.abs(t)) | np.signbit(t).astype(np.int64) << 3
    return np.concatenate([power.astype(np.uint8), _nibbles(codes)], axis=1)


def _whole(low: int, high: int, targets: npt.ArrayLike) -> _Levels:
    return _Levels(np.arange(low, high + 1, dtype=np.float32), np.asarray(targets, np.float32))


def _both(first: float, last: float, n: int) -> npt.NDArray[np.float64]:
    """Targets of either sign."""
    return np.outer(np.linspace(first, last, n), [1, -1]).ravel()


_IQ4 = _Levels(IQ4_VALUES.astype(np.float32), _both(-140, -112, 8).astype(np.float32))

ENCODERS: dict[str, Encoder] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _scaled(_whole(-8, 7, _both(-9, -7, 5)), lambda q: [_nibbles(q)]),
    "Q4_1": _above_min(_whole(0, 15, np.linspace(13.5, 16.5, 7)), lambda q: [_nibbles(q)]),
    "Q5_0": _scaled(_whole(-16, 15, _both(-17, -15, 5)), lambda q: [_fifth_bits(q), _nibbles(q)]),
    "Q5_1": _above_min(
        _whole(0, 31, np.linspace(29, 32.5, 8)), lambda q: [_fifth_bits(q), _nibbles(q)]
    ),
    "Q8_0": _scaled(
        _whole(-127, 127, [127, 126, 125, 124]),
        lambda q: [(q - 127).astype(np.int8).view(np.uint8)],
        _find_fine_scale,
    ),
    "IQ4_NL": _scaled(_IQ4, lambda q: [_nibbles(q)]),
    "MXFP4": _mxfp4,
}
