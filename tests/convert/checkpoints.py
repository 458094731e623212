"""Write safetensors files by hand, sound or broken."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "|i1": "I8",
    "|u1": "F8_E4M3",
    "|V1": "U8",  # the bytes of anything
}


def write_raw(path: Path, header: Any, data: bytes, n_header: int | None = None) -> Path:
    """Write a header, as it is or as JSON, behind its length or another, then the data."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if n_header is None else n_header) + raw + data)
    return path


def save_file(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write arrays under their names."""
    header, data = {}, b""
    for name, array in arrays.items():
        raw = array.tobytes()
        header[name] = {
            "dtype": NAMES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return write_raw(path, header, data)
