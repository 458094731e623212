"""Open a safetensors file: every number of its header checked, its tensors read when asked.

A file is the header's length (u64), a JSON object {name: {dtype, shape, data_offsets}}, then the
bytes of all tensors without a gap. Knows no architecture and no other file.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.convert.strict_json import Object, check_fetched, parse_object
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.unmapped import UnmappedFile

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMS = 8
_LENGTH_BYTES = 8
_START_BYTES = 32  # which tell what the file is

E4M3 = "F8_E4M3"
# How the bytes are read; BF16 and E4M3 stay as bits until someone decodes them.
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("<i1"),
    "U8": np.dtype("<u1"),
    "BOOL": np.dtype("<u1"),
    E4M3: np.dtype("<u1"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor of a checkpoint.

    `read` takes where its bytes begin, counted from the tensor's first, and how many they are; it
    raises ResourceError if the file changed. The values are of the type DTYPES[dtype].
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[int, int], npt.NDArray[np.uint8]]

    @property
    def n_bytes(self) -> int:
        """Bytes of its values."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def open_safetensors(path: Path) -> tuple[UnmappedFile, dict[str, Stored]]:
    """Return the file, open, and its tensors by name; they live as long as it is open.

    Raises:
        ModelNotFoundError: there is no such file, or no permission to read it.
        ModelFormatError: the file is damaged or contradicts itself.
        UnsupportedModelError: a tensor has a type that is not read here.
    """
    file = UnmappedFile(path)
    try:
        return file, _tensors(file, display(path))
    except BaseException:
        file.close()
        raise


def _tensors(file: UnmappedFile, where: str) -> dict[str, Stored]:
    n_bytes = file.identity.n_bytes
    head = file.read(0, min(n_bytes, _START_BYTES)).tobytes()
    _check_start(where, head, n_bytes)
    start = _LENGTH_BYTES + int.from_bytes(head[:_LENGTH_BYTES], "little")
    raw = file.read(_LENGTH_BYTES, start - _LENGTH_BYTES).tobytes()
    header = parse_object(raw, where)
    header.pop("__metadata__", None)
    spans: list[tuple[int, int, str]] = []
    tensors = {}
    for name, info in header.items():
        dtype, shape, begin, end = _checked(info, n_bytes - start, f"{where}: tensor {quote(name)}")
        spans.append((begin, end, name))
        tensors[name] = Stored(name, dtype, shape, partial(_read, file, start + begin))
    _check_spans(spans, n_bytes - start, where)
    return tensors


def _read(file: UnmappedFile, start: int, at: int, n_bytes: int) -> npt.NDArray[np.uint8]:
    return file.read(start + at, n_bytes)


def _check_start(where: str, head: bytes, n_bytes: int) -> None:
    check_fetched(where, head)
    if head.startswith((b"PK\x03\x04", b"\x80\x02")):
        raise ModelFormatError(
            f"{where}: a Python pickle under another name (need safetensors): it can run code when "
            "it is read, so it is not"
        )
    n_header = int.from_bytes(head[:_LENGTH_BYTES], "little")
    most = min(n_bytes - _LENGTH_BYTES, MAX_HEADER_BYTES)
    if n_bytes < _LENGTH_BYTES or not 2 <= n_header <= most:
        raise ModelFormatError(
            f"{where}: found a header of {n_header} bytes (need 2 to {max(most, 2)}); the file is "
            "truncated, or no safetensors file"
        )


def _checked(info: Any, n_data: int, where: str) -> tuple[str, tuple[int, ...], int, int]:
    """Return type, shape and span of a tensor."""
    if not isinstance(info, dict) or info.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFormatError(f"{where}: found {_keys(info)} (need dtype, shape, data_offsets)")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if dtype not in DTYPES:
        raise UnsupportedModelError(
            f"{where}: found type {quote(str(dtype))} (need one of {', '.join(DTYPES)}); "
            "get the model in one of these"
        )
    if not _is_sizes(shape) or len(shape) > MAX_DIMS:
        raise ModelFormatError(f"{where}: found shape {quote(str(shape))} (need sizes)")
    if not _is_sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= n_data:
        raise ModelFormatError(
            f"{where}: found data_offsets {quote(str(offsets))} (need begin and end, up to "
            f"{n_data}); the file is truncated or damaged"
        )
    n_bytes = math.prod(shape) * DTYPES[dtype].itemsize
    begin, end = offsets
    if end - begin != n_bytes:
        raise ModelFormatError(f"{where}: found {end - begin} bytes (its shape needs {n_bytes})")
    return dtype, tuple(shape), begin, end


def _check_spans(spans: list[tuple[int, int, str]], n_data: int, where: str) -> None:
    """Refuse overlaps and gaps: bytes of two tensors, or of none, are not what was saved."""
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise ModelFormatError(
                f"{where}: tensor {quote(name)}: begins at {begin} (need {at}, where the one "
                "before it ends)"
            )
        at = end
    if at != n_data:
        raise ModelFormatError(f"{where}: found {n_data - at} bytes after the last tensor (need 0)")


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _keys(info: Object | Any) -> str:
    return quote(", ".join(map(str, info))) if isinstance(info, dict) else type(info).__name__
