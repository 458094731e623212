"""Read GGUF's primitive values from mapped bytes, checking every length against what remains."""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.strings import StringArray, scan

Scalar = int | float | bool | str
Value = Scalar | npt.NDArray[np.generic] | StringArray


@dataclass(frozen=True, slots=True)
class ValueType:
    """A metadata value type: its id in the file, its name, its NumPy type if it is a number."""

    type_id: int
    name: str
    dtype: np.dtype[np.generic] | None


_TYPES = (
    ValueType(0, "u8", np.dtype("<u1")),
    ValueType(1, "i8", np.dtype("<i1")),
    ValueType(2, "u16", np.dtype("<u2")),
    ValueType(3, "i16", np.dtype("<i2")),
    ValueType(4, "u32", np.dtype("<u4")),
    ValueType(5, "i32", np.dtype("<i4")),
    ValueType(6, "f32", np.dtype("<f4")),
    ValueType(7, "bool", np.dtype("<u1")),
    ValueType(8, "str", None),
    ValueType(9, "array", None),
    ValueType(10, "u64", np.dtype("<u8")),
    ValueType(11, "i64", np.dtype("<i8")),
    ValueType(12, "f64", np.dtype("<f8")),
)
VALUE_TYPES: dict[int, ValueType] = {row.type_id: row for row in _TYPES}

MAX_KEY_BYTES = 65535  # the format's own limit

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def quote(text: str, limit: int = 60) -> str:
    """Return text from a file for a message: escaped and cut."""
    return ascii(text if len(text) <= limit else text[:limit] + "...")


class Cursor:
    """A place in the bytes of one file. `context` says in messages what is being read."""

    def __init__(self, buffer: npt.NDArray[np.uint8], where: str, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.file = where
        self.context = "header"
        self._view = buffer.data

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return len(self.buffer) - self.position

    @property
    def where(self) -> str:
        """File and context, the head of a message."""
        return f"{self.file}: {self.context}"

    def error(self, message: str) -> ModelFormatError:
        """Return an error that says where the cursor is."""
        return ModelFormatError(f"{self.where}: {message}")

    def take(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes`; return where they begin. Raises ModelFormatError past the end."""
        if n_bytes > self.left:
            raise self.error(
                f"{what} needs {n_bytes} bytes, found {self.left} left; "
                "the file is truncated or damaged"
            )
        start = self.position
        self.position += n_bytes
        return start

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit integer."""
        return int(_U32.unpack_from(self._view, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit integer."""
        return int(_U64.unpack_from(self._view, self.take(8, what))[0])

    def text(self, what: str, most: int | None = None) -> str:
        """Read a string of at most `most` bytes."""
        length = self.u64(f"length of {what}")
        if most is not None and length > most:
            raise self.error(f"{what}: found a length of {length} bytes (need at most {most})")
        start = self.take(length, what)
        raw = self._view[start : start + length]
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what}: found {bytes(raw[:40])!r} (need valid UTF-8)") from None

    def name(self, what: str, most: int) -> str:
        """Read a string that names something: not empty, no NUL."""
        found = self.text(what, most)
        if not found or "\0" in found:
            raise self.error(f"{what}: found {quote(found)} (need a name, not empty, without NUL)")
        return found

    def value(self) -> tuple[Value, str]:
        """Read a metadata value, its type first; return it and the name of its type."""
        kind = self._value_type("value type")
        if kind.name == "array":
            return self._array()
        if kind.dtype is None:
            return self.text("value"), kind.name
        array = self._numbers(kind, 1)
        item: Scalar = array[0].item()
        return item, kind.name

    def _value_type(self, what: str) -> ValueType:
        type_id = self.u32(what)
        kind = VALUE_TYPES.get(type_id)
        if kind is None:
            raise self.error(f"{what}: found {type_id} (need 0 to {max(VALUE_TYPES)})")
        return kind

    def _array(self) -> tuple[Value, str]:
        kind = self._value_type("element type")
        count = self.u64("array length")
        if kind.name == "array":
            raise self.error("found an array of arrays (nested arrays are not supported)")
        if kind.dtype is not None:
            return self._numbers(kind, count), f"{kind.name}[{count}]"
        bounds = scan(self.buffer, self.position, count, where=self.where)
        self.position = int(bounds[-1])
        strings = StringArray(self.buffer, bounds, where=self.where)
        return strings, f"{kind.name}[{count}]"

    def _numbers(self, kind: ValueType, count: int) -> npt.NDArray[np.generic]:
        assert kind.dtype is not None
        start = self.take(count * kind.dtype.itemsize, f"{kind.name} value")
        array = np.ndarray((count,), kind.dtype, self.buffer.data, start)
        if kind.name != "bool":
            return array
        if count and int(array.max()) > 1:
            raise self.error(f"bool: found byte {int(array.max())} (need 0 or 1)")
        return array.view(np.bool_)
