"""Write small GGUF files by hand, field by field, so that tests can break any field of them.

A file is a list of named fields: "version", "kv[2].type", "kv[2].item[0].length",
"tensor[0].dim[1]", "tensor[0].data" and so on. `gguf_bytes` renders a sound file or, with
`corrupt`, one whose named fields hold something else; the mutator of the hostile-file tests edits
the list itself.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgeinfer.quant.formats import FORMATS

TYPE_IDS = {
    "u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7,
    "str": 8, "array": 9, "u64": 10, "i64": 11, "f64": 12,
}  # fmt: skip
_CODES = {
    "u8": "<B", "i8": "<b", "u16": "<H", "i16": "<h", "u32": "<I", "i32": "<i", "f32": "<f",
    "bool": "<B", "u64": "<Q", "i64": "<q", "f64": "<d",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _CODES.items() if name != "bool"}


@dataclass(frozen=True)
class Typed:
    """A metadata value with its GGUF type spelled out: Typed("u64", 5), Typed("i32", [1, 2])."""

    type: str
    value: Any


@dataclass(frozen=True)
class Field:
    """A piece of a file; `kind` is "u32", "u64" or "bytes"."""

    name: str
    kind: str
    data: bytes

    def with_value(self, value: int | bytes) -> "Field":
        """Return the field holding an integer of its own width, or other bytes."""
        if isinstance(value, bytes):
            return replace(self, data=value)
        width = {"u32": 4, "u64": 8}[self.kind]
        return replace(self, data=(value % (1 << 8 * width)).to_bytes(width, "little"))


def gguf_bytes(
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    *,
    version: int = 3,
    corrupt: Mapping[str, int | bytes] | None = None,
    trailing: bytes = b"",
) -> bytes:
    """Render a file.

    Args:
        metadata: int (u32, or i32/u64/i64 as it needs), float (f32), bool, str or bytes (str),
            lists of them (ints as i32), NumPy arrays by dtype, or Typed.
        tensors: an array (float32, float16, integers), or (format name, shape in NumPy order), or
            the same with its bytes third; without them the bytes are small and fixed.
        corrupt: field name -> integer of the field's width, or bytes.
    """
    fields = list(gguf_fields(metadata or {}, tensors or {}, version=version))
    left = dict(corrupt or {})
    fields = [f.with_value(left.pop(f.name)) if f.name in left else f for f in fields]
    assert not left, f"no fields {sorted(left)}; there are {[f.name for f in fields]}"
    return render(fields) + trailing


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write `gguf_bytes` of the same arguments to a file; return its path."""
    path.write_bytes(gguf_bytes(metadata, tensors, **options))
    return path


def render(fields: list[Field]) -> bytes:
    """Join the fields to a file."""
    return b"".join(field.data for field in fields)


def gguf_fields(
    metadata: Mapping[str, Any], tensors: Mapping[str, Any], *, version: int = 3
) -> Iterator[Field]:
    """Yield every field of a sound file, in order."""
    alignment = _scalar_of(metadata.get("general.alignment", 32))
    size = 0
    for field in _head(metadata, tensors, version, alignment):
        size += len(field.data)
        yield field
    yield Field("padding", "bytes", bytes(-size % alignment))
    for i, spec in enumerate(tensors.values()):
        data = _tensor(spec)[2]
        yield Field(f"tensor[{i}].data", "bytes", data)
        yield Field(f"tensor[{i}].padding", "bytes", bytes(-len(data) % alignment))


def _head(
    metadata: Mapping[str, Any], tensors: Mapping[str, Any], version: int, alignment: int
) -> Iterator[Field]:
    yield Field("magic", "bytes", b"GGUF")
    yield _u32("version", version)
    yield _u64("n_tensors", len(tensors))
    yield _u64("n_kv", len(metadata))
    for i, (key, value) in enumerate(metadata.items()):
        yield from _text(f"kv[{i}].key", key)
        yield from _value(f"kv[{i}]", _typed(value))
    offset = 0
    for i, (name, spec) in enumerate(tensors.items()):
        fmt, shape, data = _tensor(spec)
        yield from _text(f"tensor[{i}].name", name)
        yield _u32(f"tensor[{i}].n_dims", len(shape))
        for j, dim in enumerate(reversed(shape)):
            yield _u64(f"tensor[{i}].dim[{j}]", dim)
        yield _u32(f"tensor[{i}].type", FORMATS[fmt].ggml_id)
        yield _u64(f"tensor[{i}].offset", offset)
        offset += len(data) + -len(data) % alignment


def _value(name: str, typed: Typed) -> Iterator[Field]:
    is_array = isinstance(typed.value, list | tuple | np.ndarray)
    if is_array:
        yield _u32(f"{name}.type", TYPE_IDS["array"])
        yield _u32(f"{name}.element_type", TYPE_IDS[typed.type])
        yield _u64(f"{name}.count", len(typed.value))
    else:
        yield _u32(f"{name}.type", TYPE_IDS[typed.type])
    items = list(typed.value) if is_array else [typed.value]
    if typed.type == "str":
        for i, item in enumerate(items):
            yield from _text(f"{name}.item[{i}]" if is_array else f"{name}.value", item)
    else:
        packed = b"".join(struct.pack(_CODES[typed.type], item) for item in items)
        yield Field(f"{name}.value", "bytes", packed)


def _text(name: str, text: str | bytes) -> Iterator[Field]:
    raw = text.encode() if isinstance(text, str) else text
    yield _u64(f"{name}.length", len(raw))
    yield Field(name, "bytes", raw)


def _u32(name: str, value: int) -> Field:
    return Field(name, "u32", struct.pack("<I", value))


def _u64(name: str, value: int) -> Field:
    return Field(name, "u64", struct.pack("<Q", value))


def _scalar_of(value: Any) -> int:
    found = value.value if isinstance(value, Typed) else value
    # A broken alignment is the test's point; the file is laid out by the usual one.
    return found if isinstance(found, int) and found in (8, 16, 32, 64, 128, 4096) else 32


def _typed(value: Any) -> Typed:
    if isinstance(value, Typed):
        return value
    if isinstance(value, np.ndarray):
        name = "bool" if value.dtype == bool else _NAMES[value.dtype]
        return Typed(name, value.tolist())
    if isinstance(value, list | tuple):
        first = value[0] if value else ""
        return Typed("i32" if type(first) is int else _typed(first).type, list(value))
    if isinstance(value, bool):
        return Typed("bool", value)
    if isinstance(value, float):
        return Typed("f32", value)
    if isinstance(value, int):
        if value < 0:
            return Typed("i32" if value >= -(1 << 31) else "i64", value)
        return Typed("u32" if value < 1 << 32 else "u64", value)
    return Typed("str", value)


def _tensor(spec: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return format name, shape and bytes."""
    if isinstance(spec, np.ndarray):
        name = {"f": "F", "i": "I"}[spec.dtype.kind] + str(8 * spec.dtype.itemsize)
        return name, spec.shape, spec.tobytes()
    name, shape, *data = spec
    if data:
        return name, tuple(shape), bytes(data[0])
    n_values = int(np.prod(shape))
    n_bytes = n_values // FORMATS[name].block_size * FORMATS[name].block_bytes
    return name, tuple(shape), bytes(i * 7 % 60 for i in range(n_bytes))
