"""Read and write the fields of edgeinfer's own files; every length is checked against what remains.

Knows no format: a reader is told by what error its caller fails.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path


def open_unfollowed(path: Path) -> int:
    """Open a file to read. A link could point anywhere, and the open of a FIFO would wait."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags)


def write_all(descriptor: int, data: memoryview, at: int) -> None:
    """Write all of `data` at an offset."""
    while data:
        n = os.pwrite(descriptor, data, at)
        data, at = data[n:], at + n


def text_field(text: str, length_form: str) -> bytes:
    """Return a text behind its length."""
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack(length_form, len(data)) + data


def padded(n_bytes: int, alignment: int) -> int:
    """Return the multiple of `alignment` that holds so many bytes."""
    return -(-n_bytes // alignment) * alignment


class FieldReader:
    """Take fields off a header's bytes, front to back."""

    def __init__(self, body: bytes, error: Callable[[str], Exception]) -> None:
        self._body, self._at = body, 0
        self.error = error

    @property
    def left(self) -> int:
        """Bytes that are not taken yet."""
        return len(self._body) - self._at

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        """Take numbers."""
        return form.unpack(self.take(form.size))

    def text(self, length_form: str) -> str:
        """Take a length and the text behind it."""
        (n_bytes,) = self.unpack(struct.Struct(length_form))
        return self.take(n_bytes).decode("utf-8", "surrogateescape")

    def take(self, n_bytes: int) -> bytes:
        """Take bytes as they are."""
        if n_bytes > self.left:
            raise self.error(f"found a field of {n_bytes} bytes where {self.left} are left")
        self._at += n_bytes
        return self._body[self._at - n_bytes : self._at]
