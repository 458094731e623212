"""Decode a stored tensor to float32 with NumPy, bit for bit as the `gguf` package does.

The truth that kernels are tested against, and the weights of the reference backend. Layouts of the
blocks are those of ggml's block structs. Knows no file and no arithmetic but decoding.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.quant import decode_32, decode_256, decode_codebook, decode_fp4
from edgeinfer.quant.tensor import Tensor

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# (blocks (n, block_bytes) uint8, out (n, block_size) float32): fills out.
Decoder = Callable[[Bytes, Floats], None]

# Values decoded at a time: temporaries stay in the second-level cache and memory flat.
_CHUNK = 1 << 16


def _f32(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f4")


def _f16(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f2")


def _bf16(blocks: Bytes, out: Floats) -> None:
    np.left_shift(blocks.view("<u2"), np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)


DECODERS: dict[str, Decoder] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    **decode_32.DECODERS,
    **decode_256.DECODERS,
    **decode_codebook.DECODERS,
    **decode_fp4.DECODERS,
}


def decode(tensor: Tensor, rows: slice | npt.ArrayLike | None = None) -> Floats:
    """Decode a tensor, or some of its rows, to float32.

    Args:
        tensor: any tensor whose format is in DECODERS.
        rows: None for all; else a slice or integer indices (one axis) into the `n_rows` rows that
            the leading axes make up.

    Returns:
        float32 of the tensor's shape; with `rows`, (number of chosen rows, n_columns).

    Raises:
        UnsupportedModelError: the format has no decoder.
        InvalidParameterError: an index in `rows` is out of range or not an integer.
    """
    decoder = DECODERS.get(tensor.format.name)
    if decoder is None:
        raise UnsupportedModelError(
            f"tensor {tensor.name!r}: format {tensor.format.name} cannot be decoded "
            f"(can: {', '.join(DECODERS)})"
        )
    stored = tensor.row_data if rows is None else _chosen_rows(tensor, rows)
    out = np.empty((len(stored), tensor.n_columns), np.float32)
    step = max(1, _CHUNK // tensor.n_columns)
    fmt = tensor.format
    # Scales of broken files may be infinite or NaN; what they decode to is defined, not an event.
    with np.errstate(all="ignore"):
        for row in range(0, len(stored), step):
            chosen = stored[row : row + step]
            blocks = np.ascontiguousarray(chosen).reshape(-1, fmt.block_bytes)
            decoder(blocks, out[row : row + step].reshape(-1, fmt.block_size))
    return out.reshape(tensor.shape) if rows is None else out


def _chosen_rows(tensor: Tensor, rows: slice | npt.ArrayLike) -> Bytes:
    stored = tensor.row_data
    if isinstance(rows, slice):
        return stored[rows]
    index = np.asarray(rows)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise InvalidParameterError(
            f"tensor {tensor.name!r}: rows: found {index.dtype} with {index.ndim} axes "
            "(need one axis of integers)"
        )
    if not index.size:
        return stored[:0]
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= len(stored):
        raise InvalidParameterError(
            f"tensor {tensor.name!r}: rows: found {low if low < 0 else high} "
            f"(need 0 to {len(stored) - 1})"
        )
    chosen: Bytes = stored[index]
    return chosen
