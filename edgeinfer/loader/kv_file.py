"""Write and read KV files: tokens, and the keys and values they have in one model, page by page.

    magic "EI-KEYS\n"   version u32   positions of a page u32
    tokens u32   of them with keys and values u32   pages u32   bytes of a page u32
    bytes of the recurrent state u32, 0 if there is none
    bytes of the header u64   bytes of the file u64
    checksum of the header, SHA-256 (taken with zeros in its place)
    the binding: six texts, each behind its u16 length; the source, u32 and text
    the conversation, u32 and JSON text, or nothing
    the tokens, i32 each; for each page, and the state, its bytes in the file u64 and their SHA-256
    the pages, one behind the other; the last one, if it is not full, compressed by zlib
    the state behind the last token that has keys and values

Little-endian. The version rises with the format, and with the arithmetic of the kernels, for then
keys and values are no longer those that would be computed.
"""

import os
import stat
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import SessionError
from edgeinfer.loader.fields import FieldReader, open_unfollowed, text_field, write_all
from edgeinfer.loader.mapped import display

MAGIC = b"EI-KEYS\n"
VERSION = 2
MOST_HEADER_BYTES = 256 << 20
LEVEL = 1  # of zlib: what it finds is zeros

_PREFIX = struct.Struct("<8sIIIIIIIQQ32s")
_CHECKSUM_AT = _PREFIX.size - 32
_ENTRY = struct.Struct("<Q32s")

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Binding:
    """All that decides what keys and values tokens have, and how their bytes are laid out.

    model: the fingerprint of its file. program: a hash of what depends on more than the file, such
    as the frequencies that n_ctx chooses. layout: that of a page, which each backend has its own.
    """

    model: str
    program: str
    kv_type: str
    activations: str
    layout: str
    adapter: str = ""

    def digest(self) -> str:
        """Return a hash of it for the name of a file."""
        text = "\n".join(getattr(self, field.name) for field in fields(self))
        return blake2b(text.encode(), digest_size=12).hexdigest()

    def differences(self, needed: "Binding") -> str:
        """Say what differs from what is needed, nothing if all is equal."""
        pairs = [(f.name, getattr(self, f.name), getattr(needed, f.name)) for f in fields(self)]
        return ", ".join(
            f"{name}: found {found or 'none'} (need {wanted or 'none'})"
            for name, found, wanted in pairs
            if found != wanted
        )


UNBOUND = Binding(model="", program="", kv_type="", activations="", layout="")


@dataclass(frozen=True, slots=True)
class Page:
    """The bytes of a page, or of the state, in the file."""

    offset: int
    n_bytes: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """What a KV file says about itself. `tokens` has `n_stored` with keys and values, or more.

    `pages`: behind the pages there is the state, if it has any bytes.
    """

    binding: Binding
    source: str
    conversation: str
    tokens: tuple[int, ...]
    n_stored: int
    page_len: int
    page_bytes: int
    state_bytes: int = 0
    pages: tuple[Page, ...] = ()
    n_bytes: int = 0

    def n_positions(self, index: int) -> int:
        """Return how many positions of a page are stored."""
        return min(self.page_len, self.n_stored - index * self.page_len)

    @property
    def n_pages(self) -> int:
        """How many pages are stored."""
        return -(-self.n_stored // self.page_len)

    @property
    def n_parts(self) -> int:
        """How many pages are stored, and the state."""
        return self.n_pages + (self.state_bytes > 0)

    def size_of(self, index: int) -> int:
        """Return the bytes of a page or, behind the pages, of the state."""
        return self.page_bytes if index < self.n_pages else self.state_bytes

    def is_packed(self, index: int) -> bool:
        """Whether a part is compressed: the last page, if it is not full."""
        return index < self.n_pages and self.n_positions(index) < self.page_len


def most_bytes(header: Header) -> int:
    """Return a bound of the size of the file that is to have this header."""
    return _header_bytes(header) + sum(map(header.size_of, range(header.n_parts)))


def write(path: Path, header: Header, parts: Iterator[Bytes]) -> None:
    """Write a whole KV file and sync it to the disk; the header comes last. Raises OSError.

    `parts` are the pages and, if the header says so, the state.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        at, written = _header_bytes(header), []
        for index, part in enumerate(parts):
            data = part.tobytes()
            if header.is_packed(index):
                data = zlib.compress(data, LEVEL)
            write_all(descriptor, memoryview(data), at)
            written.append(Page(at, len(data), sha256(data).digest()))
            at += len(data)
        write_all(descriptor, memoryview(_encode(header, written, at)), 0)
        os.fsync(file.fileno())


class KvFile:
    """An open KV file whose header is sound; the pages are checked as they are read."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises OSError; SessionError if it is no whole KV file of this version."""
        self.path = path
        self._where = display(path)
        self._descriptor = -1
        self._descriptor = open_unfollowed(path)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._error("not a regular file (need a saved session or prefix)")
            self.header = self._decode(status.st_size)
        except BaseException:
            self.close()
            raise

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens whose keys and values are stored."""
        return self.header.tokens[: self.header.n_stored]

    def need(self, binding: Binding, page_len: int, page_bytes: int, state_bytes: int = 0) -> None:
        """Raise SessionError, saying what differs, unless the pages are those of `binding`."""
        if differences := self.header.binding.differences(binding):
            raise self._error(f"saved by another model or otherwise loaded: {differences}")
        found = (self.header.page_len, self.header.page_bytes)
        if found != (page_len, page_bytes):
            raise self._error(
                f"found pages of {found[0]} positions in {found[1]} bytes "
                f"(need {page_len} in {page_bytes})"
            )
        if self.header.n_stored and self.header.state_bytes != state_bytes:
            raise self._error(
                f"found a state of {self.header.state_bytes} bytes (need {state_bytes})"
            )

    def page(self, index: int) -> Bytes:
        """Read a page. Raises SessionError if it is damaged, OSError if it cannot be read."""
        page, n_bytes = self.header.pages[index], self.header.size_of(index)
        what = f"page {index}" if index < self.header.n_pages else "the state"
        data = os.pread(self._descriptor, page.n_bytes, page.offset)
        if sha256(data).digest() != page.checksum:
            raise self._error(f"{what}: the checksum is wrong; the file is damaged")
        if self.header.is_packed(index):
            data = self._unpacked(what, data)
        if len(data) != n_bytes:
            raise self._error(f"{what}: found {len(data)} bytes (need {n_bytes})")
        return np.frombuffer(data, np.uint8)

    def state(self) -> Bytes:
        """Read the state, which the header says is there; raises as `page` does."""
        return self.page(self.header.n_pages)

    def check(self) -> None:
        """Read every page, and the state, once; raises as `page` does."""
        for index in range(len(self.header.pages)):
            self.page(index)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "KvFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def _error(self, what: str) -> SessionError:
        return SessionError(f"{self._where}: {what}")

    def _unpacked(self, what: str, data: bytes) -> bytes:
        try:
            return zlib.decompressobj().decompress(data, self.header.page_bytes + 1)
        except zlib.error as error:
            raise self._error(f"{what}: {error}") from None

    def _decode(self, file_bytes: int) -> Header:
        prefix = os.pread(self._descriptor, _PREFIX.size, 0)
        if len(prefix) < _PREFIX.size or prefix[:8] != MAGIC:
            raise self._error(f"no saved session: begins {prefix[:8]!r} (need {MAGIC!r})")
        _, version, *counts, n_bytes, stated, checksum = _PREFIX.unpack(prefix)
        if version != VERSION:
            raise self._error(f"found version {version} (need {VERSION}); save it again")
        if stated != file_bytes:
            raise self._error(f"found {file_bytes} bytes (need the {stated} it was written with)")
        if not _PREFIX.size <= n_bytes <= min(file_bytes, MOST_HEADER_BYTES):
            raise self._error(f"found a header of {n_bytes} bytes in a file of {file_bytes}")
        body = os.pread(self._descriptor, n_bytes - _PREFIX.size, _PREFIX.size)
        if checksum != sha256(prefix[:_CHECKSUM_AT] + bytes(32) + body).digest():
            raise self._error("the checksum of the header is wrong; the file is damaged")
        reader = FieldReader(body, lambda what: self._error(f"header: {what}"))
        return _header_of(reader, counts, n_bytes, file_bytes)


def _header_of(reader: FieldReader, counts: Sequence[int], start: int, end: int) -> Header:
    """Read what is behind the prefix of a header; the pages fill the file from `start` to `end`."""
    page_len, n_tokens, n_stored, n_pages, page_bytes, state_bytes = counts
    binding = Binding(*(reader.text("<H") for _ in fields(Binding)))
    source, conversation = reader.text("<I"), reader.text("<I")
    tokens = array("i", reader.take(4 * n_tokens))
    if page_len < 1 or n_stored > n_tokens or n_pages != -(-n_stored // page_len):
        raise reader.error(
            f"found {n_stored} of {n_tokens} tokens in {n_pages} pages of {page_len} positions"
        )
    if any(token < 0 for token in tokens):
        raise reader.error(f"token id: found {min(tokens)} (need 0 or more)")
    pages = []
    for index in range(n_pages + (state_bytes > 0)):
        n_bytes, checksum = _ENTRY.unpack(reader.take(_ENTRY.size))
        if n_bytes > end - start:
            raise reader.error(f"page {index}: found {n_bytes} bytes where {end - start} are left")
        pages.append(Page(start, n_bytes, checksum))
        start += n_bytes
    if reader.left or start != end:
        raise reader.error(f"found {reader.left} and {end - start} bytes too many (need none)")
    sizes = (n_stored, page_len, page_bytes, state_bytes)
    return Header(binding, source, conversation, tuple(tokens), *sizes, tuple(pages), end)


def _header_bytes(header: Header) -> int:
    return _PREFIX.size + len(_fixed(header)) + header.n_parts * _ENTRY.size


def _fixed(header: Header) -> bytes:
    """Return the body of a header without its pages."""
    binding = b"".join(text_field(getattr(header.binding, f.name), "<H") for f in fields(Binding))
    texts = text_field(header.source, "<I") + text_field(header.conversation, "<I")
    return binding + texts + array("i", header.tokens).tobytes()


def _encode(header: Header, pages: Sequence[Page], file_bytes: int) -> bytes:
    body = _fixed(header) + b"".join(_ENTRY.pack(p.n_bytes, p.checksum) for p in pages)
    counts = (header.page_len, len(header.tokens), header.n_stored, header.n_pages)
    lengths = (header.page_bytes, header.state_bytes)
    sizes = (_PREFIX.size + len(body), file_bytes)

    def prefix(checksum: bytes) -> bytes:
        return _PREFIX.pack(MAGIC, VERSION, *counts, *lengths, *sizes, checksum)

    return prefix(sha256(prefix(bytes(32)) + body).digest()) + body
