"""Choose who encodes rows: NumPy for formats that only round."""

import numpy as np

from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.quantizing.conversion import Bytes, Encode, Floats, Piece

MOST_F16 = 65504.0
MOST = 3.0e38


def encoder() -> Encode:
    """Return the function that encodes a piece's rows."""
    return _encode


def _encode(piece: Piece, rows: Floats) -> Bytes:
    found = _ROUNDERS.get(piece.format.name)
    if found is None:
        raise UnsupportedModelError(
            f"format {piece.format.name} cannot be written (can: {', '.join(_ROUNDERS)})"
        )
    largest = MOST_F16 if piece.format.name == "F16" else MOST
    if not max(float(rows.max()), -float(rows.min())) <= largest:
        raise InvalidParameterError(f"{piece.format.name}: found a value above {largest:g}")
    return found(rows)


def _f32(rows: Floats) -> Bytes:
    return np.ascontiguousarray(rows, "<f4").view(np.uint8)


def _f16(rows: Floats) -> Bytes:
    return rows.astype("<f2").view(np.uint8)


def _bf16(rows: Floats) -> Bytes:
    """Round to the nearest, to even where two are as near; the rows are finite."""
    bits = rows.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (rounded >> np.uint32(16)).astype("<u2").view(np.uint8)


_ROUNDERS = {"F32": _f32, "F16": _f16, "BF16": _bf16}
