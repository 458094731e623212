"""Encode metadata for a GGUF file: key-value pairs in, their bytes out, as the loader reads them.

What came out of a file goes into another bit for bit; an array of strings is copied in one piece.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgeinfer.loader.cursor import VALUE_TYPES, Value
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray

# Keys under it tell what a file lost against its source. They are of that file, and not copied.
REPORT = "edgeinfer.report."

_BY_NAME = {row.name: row for row in VALUE_TYPES.values()}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A key-value pair; `type_name` is GGUF's name of the type: "u32", "str", "f32[]", "str[3]"."""

    key: str
    type_name: str
    value: Value


def entries_of(metadata: Metadata) -> list[Entry]:
    """Return the pairs of a file's metadata, in its order."""
    return [Entry(key, metadata.type_name(key), metadata[key]) for key in metadata]


def with_entries(entries: Iterable[Entry], changed: Iterable[Entry]) -> list[Entry]:
    """Return the pairs with some replaced where they stand, or added at the end."""
    left = {entry.key: entry for entry in changed}
    kept = [left.pop(entry.key, entry) for entry in entries]
    return kept + list(left.values())


def encode(entry: Entry) -> bytes:
    """Return the bytes of a pair: key, type, value."""
    name, bracket, _ = entry.type_name.partition("[")
    kind, value = _BY_NAME[name], entry.value
    head = text_bytes(entry.key)
    if not bracket:
        head += struct.pack("<I", kind.type_id)
        if kind.dtype is None:
            assert isinstance(value, str), f"{entry.key}: {type(value)}"
            return head + text_bytes(value)
        return head + np.array(value, kind.dtype).tobytes()
    assert isinstance(value, StringArray | np.ndarray), f"{entry.key}: {type(value)}"
    head += struct.pack("<IIQ", _BY_NAME["array"].type_id, kind.type_id, len(value))
    if isinstance(value, StringArray):
        return head + value.stored.tobytes()
    assert kind.dtype is not None
    return head + value.astype(kind.dtype, casting="safe").tobytes()


def text_bytes(text: str) -> bytes:
    """Return a string behind its length."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
