"""Read matrices kept as 8-bit floats with scales: a value is its code's number times its scale.

Codes are E4M3 without infinities (OCP 8-bit floating point, FP8). A scale is that of a block of a
matrix, as DeepSeek V3 and the FP8 files of Qwen3 have it, of a row, or of a whole tensor.
"""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from edgeinfer.convert.config import Config
from edgeinfer.convert.safetensors import E4M3, Stored
from edgeinfer.convert.weights import Floats, Index, Weights, stored
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote

SCALES = ("_scale_inv", "_scale")  # behind the matrix's name; either is multiplied by
BLOCK = (128, 128)
# What activations, or keys and values, are multiplied by before they become 8-bit floats, too; and
# the matrices of codes, one of which stands beside it.
ACTIVATION_SCALES = {
    "input_scale": ("weight",),
    "input_scale_ub": ("weight",),
    "output_scale": ("weight",),
    "k_scale": ("weight", "k_proj.weight", "qkv_proj.weight"),
    "v_scale": ("weight", "v_proj.weight", "qkv_proj.weight"),
}


def is_scale(name: str, tensors: Mapping[str, Stored]) -> bool:
    """Tell whether a tensor is the scales of another one's codes."""
    bases = (name.removesuffix(suffix) for suffix in SCALES if name.endswith(suffix))
    return any(base in tensors and tensors[base].dtype == E4M3 for base in bases)


def is_of_activations(name: str, tensors: Mapping[str, Stored]) -> bool:
    """Tell whether a tensor is a scale for the activations of matrices of codes, beside them.

    Activations are no 8-bit floats here, so it is of no use.
    """
    module, _, last = name.rpartition(".")
    beside = (f"{module}.{matrix}" for matrix in ACTIVATION_SCALES.get(last, ()))
    return any(matrix in tensors and tensors[matrix].dtype == E4M3 for matrix in beside)


def dequantized(codes: Stored, tensors: Mapping[str, Stored], c: Config) -> Weights:
    """Return a matrix of codes as floats. Raises ModelFormatError if its scales do not suit it."""
    scales = next((tensors[codes.name + s] for s in SCALES if codes.name + s in tensors), None)
    where = f"tensor {quote(codes.name)}"
    if scales is None:
        raise ModelFormatError(f"{where}: found {E4M3} without scales (need {SCALES[0]})")
    if len(codes.shape) < 2:
        raise ModelFormatError(f"{where}: found {E4M3} of shape {codes.shape} (need a matrix)")
    *leading, n_rows, n_columns = codes.shape
    height, width = _block(c)
    n_high, n_wide = -(-n_rows // height), -(-n_columns // width)
    shape = scales.shape
    if shape == (*leading, n_high, n_wide):
        pass
    elif math.prod(shape) == 1:
        height, width, n_high, n_wide = math.prod(codes.shape[:-1]), n_columns, 1, 1
        n_rows = height
    elif shape in ((*leading, n_rows), (*leading, n_rows, 1)):
        height, width, n_high, n_wide = 1, n_columns, n_rows, 1
    else:
        need = (*leading, n_high, n_wide)
        raise ModelFormatError(
            f"{where}: found scales of shape {shape} for {codes.shape} (need {need}, a scale a "
            "row, or one)"
        )

    @cache
    def table() -> Floats:
        flat = stored(scales)
        return flat.rows(0, flat.n_rows).reshape(-1, n_wide)

    raw = stored(codes)

    def take(rows: Index) -> npt.NDArray[np.float32]:
        at = rows // n_rows * n_high + rows % n_rows // height
        by = np.repeat(table()[at], width, axis=1)[:, :n_columns]
        values: Floats = numbers()[raw.take(rows)] * by
        return values

    return Weights(codes.shape, "F32", take)


@cache
def numbers() -> Floats:
    """Return the number of each of the 256 codes; 0x7f and 0xff are NaN."""
    codes = np.arange(256)
    exponents, fractions = codes >> 3 & 15, codes & 7
    magnitudes = np.where(
        exponents == 0, np.ldexp(fractions, -9), np.ldexp(8 + fractions, exponents - 10)
    )
    magnitudes[(codes & 127) == 127] = np.nan
    values: Floats = np.where(codes < 128, magnitudes, -magnitudes).astype(np.float32)
    return values


def _block(c: Config) -> tuple[int, int]:
    """Return the rows and columns that share a scale."""
    how = c.raw.get("quantization_config")
    found = how.get("weight_block_size") if isinstance(how, dict) else None
    if found is None:
        return BLOCK
    is_sound = isinstance(found, list) and len(found) == 2
    if not is_sound or not all(type(n) is int and n > 0 for n in found):
        raise c.error(
            "quantization_config.weight_block_size", f"{quote(str(found))} (need [128, 128])"
        )
    return found[0], found[1]
