"""Hold an array of strings of a GGUF file without unpacking it: where each begins, and the map.

NOTE the scan. Each string is a u64 length and its bytes, so the next one is found only through the
last: a chain of a quarter of a million steps in a vocabulary. But a length below 256 is one byte
and seven zeros, and text rarely holds zeros, so the places where seven zeros stand together are
the length fields, found by NumPy at once. They are only guesses until each is seen to point at the
next: that comparison is the proof, and where it fails the scan walks string by string.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ModelFormatError

Bytes = npt.NDArray[np.uint8]

# Real vocabularies have up to 0.3 million tokens and 0.6 million merges; the bound keeps the index
# of a hostile file under 128 MB and the walk under seconds.
MAX_STRINGS = 1 << 24

_LENGTH = struct.Struct("<Q")
_FIELD = _LENGTH.size
_FIRST_WINDOW = 1 << 12
_LAST_WINDOW = 1 << 16
_FIRST_WALK = 1 << 6
_LAST_WALK = 1 << 14
_CHUNK = 1 << 11


class StringArray(Sequence[str]):
    """An array of strings that stays in the mapped file.

    `len`, indexing and iteration give `str`; vectorised users take `buffer`, `starts` and
    `lengths`. Invalid UTF-8 is a ModelFormatError, naming the index, when the string is asked for.
    """

    __slots__ = ("_bounds", "_where", "buffer")

    def __init__(self, buffer: Bytes, bounds: npt.NDArray[np.int64], *, where: str) -> None:
        """Take the index that `scan` made: `bounds[i]` is where string i's length field begins."""
        self.buffer = buffer
        self._bounds = bounds
        self._where = where

    @classmethod
    def from_strings(
        cls, strings: Iterable[str | bytes], *, where: str = "strings"
    ) -> "StringArray":
        """Build an array from Python strings, laid out as in a file."""
        raw = [text.encode() if isinstance(text, str) else text for text in strings]
        stored = b"".join(_LENGTH.pack(len(text)) + text for text in raw)
        buffer = np.frombuffer(stored, np.uint8)
        return cls(buffer, scan(buffer, 0, len(raw), where=where), where=where)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Index into `buffer` of each string's first byte, (n,) int64."""
        return self._bounds[:-1] + _FIELD

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each string, (n,) int64."""
        return np.diff(self._bounds) - _FIELD

    @property
    def stored(self) -> Bytes:
        """All strings as they lie in a file, each behind its length."""
        return self.buffer[self._bounds[0] : self._bounds[-1]]

    @property
    def where(self) -> str:
        """File and key, for messages."""
        return self._where

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        raw = self.bytes_at(position)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._not_utf8(position) from None

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK):
            yield from self._texts(first, min(first + _CHUNK, len(self)))

    def bytes_at(self, index: int) -> bytes:
        """Return the bytes of string `index` (0 to len - 1), valid UTF-8 or not."""
        start, end = int(self._bounds[index]) + _FIELD, int(self._bounds[index + 1])
        return self.buffer[start:end].tobytes()

    def tolist(self) -> list[str]:
        """Return all strings; many times faster than one by one."""
        return list(self)

    def tobytes_list(self) -> list[bytes]:
        """Return the bytes of all strings, valid UTF-8 or not."""
        out: list[bytes] = []
        for first in range(0, len(self), _CHUNK):
            last = min(first + _CHUNK, len(self))
            joined = self._joined(first, last)
            if joined is None:
                out += (self.bytes_at(i) for i in range(first, last))
            else:
                out += joined.split(bytes(_FIELD))[1:]
        return out

    def _texts(self, first: int, last: int) -> list[str]:
        joined = self._joined(first, last)
        if joined is None:
            return [self[i] for i in range(first, last)]
        try:
            # Zeros around each string keep a cut-off sequence from joining its neighbour.
            return joined.decode().split("\0" * _FIELD)[1:]
        except UnicodeDecodeError as error:
            at = int(self._bounds[first]) + error.start
            raise self._not_utf8(int(np.searchsorted(self._bounds, at, "right")) - 1) from None

    def _joined(self, first: int, last: int) -> bytes | None:
        """Return strings first to last, each after eight zero bytes; None if one has zeros."""
        bounds = self._bounds[first : last + 1]
        fields = bounds[:-1] - bounds[0]
        region = self.buffer[bounds[0] : bounds[-1]].copy()
        region[fields] = 0
        if np.diff(bounds).max(initial=0) > 255 + _FIELD:
            for byte in range(1, _FIELD):
                region[fields + byte] = 0
        n_zeros = len(region) - int(np.count_nonzero(region))
        return region.tobytes() if n_zeros == _FIELD * len(fields) else None

    def _not_utf8(self, index: int) -> ModelFormatError:
        return ModelFormatError(
            f"{self._where}: string {index}: found {self.bytes_at(index)[:40]!r} (need valid UTF-8)"
        )


def scan(buffer: Bytes, start: int, count: int, *, where: str) -> npt.NDArray[np.int64]:
    """Find `count` strings from byte `start` on.

    Returns:
        (count + 1,) int64: where each length field begins, then the end of the last string.

    Raises:
        ModelFormatError: the strings do not fit into the buffer, or are more than MAX_STRINGS.
    """
    room = (len(buffer) - start) // _FIELD
    if count > min(room, MAX_STRINGS):
        raise ModelFormatError(
            f"{where}: found an array of {count} strings "
            f"(need at most {min(room, MAX_STRINGS)}, {len(buffer) - start} bytes are left)"
        )
    bounds = np.empty(count + 1, np.int64)
    done, position, window, walk = 0, start, _FIRST_WINDOW, _FIRST_WALK
    while done < count:
        run = _run_of_short(buffer[position : position + window])[: count - done]
        before = position
        if len(run):
            np.add(run, position, out=bounds[done : done + len(run)])
            done += len(run)
            last = int(bounds[done - 1])
            position = last + _FIELD + int(buffer[last])
            if position > len(buffer):
                raise _too_long(where, done - 1, int(buffer[last]), len(buffer) - last)
        if position - before > window // 2:
            window, walk = min(2 * window, _LAST_WINDOW), _FIRST_WALK
        else:
            # Walking farther each time keeps a file made to break every run in linear time.
            steps = min(walk, count - done)
            position = _walk(buffer, position, bounds[done : done + steps], done, where)
            done += steps
            window, walk = _FIRST_WINDOW, min(2 * walk, _LAST_WALK)
    bounds[count] = position
    return bounds


def _run_of_short(window: Bytes) -> npt.NDArray[np.int64]:
    """Return offsets of length fields below 256, the first 0, each proven by the one before."""
    zero = window == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    guesses = np.flatnonzero(four[:-3] & four[3:]) - 1
    if len(guesses) and guesses[0] < 0:
        guesses = guesses[1:]
    if not len(guesses) or guesses[0] != 0:
        return guesses[:0]
    nexts = guesses + _FIELD + window[guesses]
    broken = np.flatnonzero(nexts[:-1] != guesses[1:])
    return guesses[: broken[0] + 1] if len(broken) else guesses


def _walk(
    buffer: Bytes, position: int, bounds: npt.NDArray[np.int64], index: int, where: str
) -> int:
    """Fill `bounds` string by string; return the position after the last."""
    read, view, size = _LENGTH.unpack_from, buffer.data, len(buffer)
    found: list[int] = []
    for _ in range(len(bounds)):
        left = size - position
        length = read(view, position)[0] if left >= _FIELD else 0
        if length > left - _FIELD:
            raise _too_long(where, index + len(found), length, left)
        found.append(position)
        position += _FIELD + length
    bounds[:] = found
    return position


def _too_long(where: str, index: int, length: int, left: int) -> ModelFormatError:
    return ModelFormatError(
        f"{where}: string {index}: found length {length} with {max(left - _FIELD, 0)} bytes "
        "left; the file is truncated or damaged"
    )
