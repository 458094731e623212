"""Write and map pack files: the matrices of one model, laid out, in one file. Knows no layout.

    magic "EI-PACK\\n"   version u32   number of matrices u32
    bytes of the header u64   start of the data u64   bytes of the file u64
    fingerprint, 32 bytes     checksum of the header, 32 bytes (taken with zeros in its place)
    layout: u16 length, text          source: u32 length, path of the model when it was packed
    for each matrix: u16 length, name; u16 length, format; matrices (experts), rows of
    each, columns, offset, bytes: u64
    zeros up to the start of the data, a multiple of 2 MB; there the matrices, each at a
    multiple of 64 bytes

Little-endian. Offsets count from the start of the data. That starts at 2 MB and is written 2 MB or
more at a time, because Linux then keeps and maps it in huge pages (ext4 since 6.16).
"""

import mmap
import os
import stat
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from edgeinfer.errors import ModelFormatError, ResourceError
from edgeinfer.loader.fields import FieldReader, open_unfollowed, padded, text_field, write_all
from edgeinfer.loader.mapped import MappedFile, display
from edgeinfer.quant.packed import MatrixKey, MatrixToPack, PackedMatrix

Progress = Callable[[int, int], None]

MAGIC = b"EI-PACK\n"
VERSION = 1
ALIGNMENT = 64
HUGE_PAGE = 2 << 20
WRITE_BYTES = 4 * HUGE_PAGE
MOST_HEADER_BYTES = 64 << 20

_PREFIX = struct.Struct("<8sIIQQQ32s32s")
_CHECKSUM_AT = _PREFIX.size - 32
_PLACE = struct.Struct("<QQQQQ")


@dataclass(frozen=True, slots=True)
class Place:
    """A matrix of a pack, and where its bytes are."""

    key: MatrixKey
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a pack file says about itself; `data_start + offset` is where a matrix begins."""

    fingerprint: bytes
    layout: str
    source: str
    places: tuple[Place, ...]
    data_start: int
    n_bytes: int


def plan(
    matrices: Sequence[MatrixToPack], *, fingerprint: bytes, layout: str, source: str
) -> Header:
    """Return the header of a pack that is to hold these matrices."""
    places, at = [], 0
    for matrix in matrices:
        places.append(Place(matrix.key, at, matrix.n_bytes))
        at = padded(at + matrix.n_bytes, ALIGNMENT)
    end = places[-1].offset + places[-1].n_bytes if places else 0
    header = Header(fingerprint, layout, source, tuple(places), 0, 0)
    data_start = padded(len(_encode(header)), HUGE_PAGE)
    return Header(fingerprint, layout, source, tuple(places), data_start, data_start + end)


def write(
    path: Path, header: Header, matrices: Sequence[MatrixToPack], progress: Progress | None = None
) -> None:
    """Write a whole pack file and sync it to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(_encode(header))
        at = header.data_start
        for chunk in _chunks(header, matrices):
            write_all(descriptor, chunk, at)
            at += len(chunk)
            if progress:
                progress(at - header.data_start, header.n_bytes - header.data_start)
        file.truncate(header.n_bytes)
        os.fsync(descriptor)


def read_header(path: Path) -> Header:
    """Read and check the header of a pack file.

    Raises OSError; ModelFormatError if it is not a whole pack file of this version.
    """
    with _Opened(path) as opened:
        return opened.header


class Pack(dict[str, PackedMatrix]):
    """The matrices of a mapped pack file, by name. The map lives as long as any of them."""

    def __init__(
        self, path: Path, descriptor: int, n_bytes: int, matrices: Iterable[PackedMatrix]
    ) -> None:
        super().__init__((matrix.key.name, matrix) for matrix in matrices)
        self.path, self._n_bytes, self._descriptor = path, n_bytes, os.dup(descriptor)
        self._finalizer = weakref.finalize(self, os.close, self._descriptor)

    def close(self) -> None:
        """Let go of the file, not of the map; safe to call twice."""
        self._finalizer()

    def check_unchanged(self) -> None:
        """Raise ResourceError if the file was shortened since: its pages are gone. One that was
        removed or replaced is still there.
        """
        if not self._finalizer.alive:
            return
        found = os.fstat(self._descriptor).st_size
        if found < self._n_bytes:
            raise ResourceError(
                f"{display(self.path)}: the pack was shortened since it was opened: found {found} "
                f"bytes (opened with {self._n_bytes}); load the model again"
            )

    def check_contents(self) -> None:
        """Do the same: nobody writes to a pack that is whole."""
        self.check_unchanged()


def map_pack(path: Path) -> tuple[Header, Pack]:
    """Map the matrices of a pack file.

    Raises as `read_header` does.
    """
    with _Opened(path) as opened:
        header = opened.header
        try:
            mapped = MappedFile(opened.descriptor, header.n_bytes, access=mmap.ACCESS_READ)
        except ValueError:
            raise ModelFormatError(
                f"{display(path)}: the file shrank while it was opened"
            ) from None
        mapped.where = display(path)
        _advise(mapped, header.n_bytes)
        data = np.frombuffer(mapped, np.uint8)[header.data_start :]
        matrices = (
            PackedMatrix(place.key, data[place.offset :][: place.n_bytes])
            for place in header.places
        )
        return header, Pack(path, opened.descriptor, header.n_bytes, matrices)


def _advise(mapped: mmap.mmap, n_bytes: int) -> None:
    """Ask for huge pages, and for the file to be read ahead if memory is there for it."""
    wanted = ["MADV_HUGEPAGE"]
    if hasattr(os, "sysconf") and n_bytes < os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2:
        wanted.append("MADV_WILLNEED")
    for advice in wanted:
        if hasattr(mmap, advice):
            with suppress(OSError):  # a kernel or a file system that knows none
                mapped.madvise(getattr(mmap, advice))


class _Opened:
    """An open pack file whose header is sound and whose size is what the header says."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_unfollowed(path)
        try:
            status = os.fstat(self.descriptor)
            where = display(path)
            _check_file(where, status)
            self.header = _decode(where, self.descriptor, status.st_size)
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self.descriptor)


def _check_file(where: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ModelFormatError(f"{where}: not a regular file (need a pack file)")
    if hasattr(os, "geteuid") and (
        status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH
    ):
        raise ModelFormatError(
            f"{where}: found owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o} "
            "(need a file only you or root can change: its bytes are used unseen)"
        )


def _encode(header: Header) -> bytes:
    """Return the header's bytes with their checksum."""
    body = bytearray()
    body += text_field(header.layout, "<H") + text_field(header.source, "<I")
    for place in header.places:
        key = place.key
        body += text_field(key.name, "<H") + text_field(key.format, "<H")
        body += _PLACE.pack(key.n_matrices, key.n_rows, key.n_columns, place.offset, place.n_bytes)
    n_bytes = _PREFIX.size + len(body)

    def prefix(checksum: bytes) -> bytes:
        counts = (VERSION, len(header.places), n_bytes, header.data_start, header.n_bytes)
        return _PREFIX.pack(MAGIC, *counts, header.fingerprint, checksum)

    checksum = _checksum(prefix(bytes(32)), bytes(body))
    return prefix(checksum) + bytes(body)


def _decode(where: str, descriptor: int, file_bytes: int) -> Header:
    """Read the header; every length is checked against what remains."""
    prefix = os.pread(descriptor, _PREFIX.size, 0)
    if len(prefix) < _PREFIX.size or prefix[:8] != MAGIC:
        raise ModelFormatError(f"{where}: not a pack file: begins {prefix[:8]!r} (need {MAGIC!r})")
    fields = _PREFIX.unpack(prefix)
    _, version, n_matrices, n_bytes, data_start, stated, fingerprint, checksum = fields
    if version != VERSION:
        raise ModelFormatError(f"{where}: found pack version {version} (need {VERSION})")
    if stated != file_bytes:
        raise ModelFormatError(
            f"{where}: found {file_bytes} bytes (need the {stated} it was written with)"
        )
    if not _PREFIX.size <= n_bytes <= min(data_start, file_bytes, MOST_HEADER_BYTES):
        raise ModelFormatError(f"{where}: found a header of {n_bytes} bytes in {data_start}")
    if data_start % HUGE_PAGE or data_start > file_bytes:
        raise ModelFormatError(f"{where}: found data at byte {data_start} of {file_bytes}")
    body = os.pread(descriptor, n_bytes - _PREFIX.size, _PREFIX.size)
    if checksum != _checksum(prefix[:_CHECKSUM_AT] + bytes(32), body):
        raise ModelFormatError(f"{where}: the checksum of the header is wrong; it is damaged")
    reader = FieldReader(body, lambda what: ModelFormatError(f"{where}: pack header: {what}"))
    layout, source = reader.text("<H"), reader.text("<I")
    places = tuple(_places(reader, n_matrices, file_bytes - data_start))
    return Header(fingerprint, layout, source, places, data_start, file_bytes)


def _places(reader: FieldReader, n_matrices: int, data_bytes: int) -> Iterator[Place]:
    end = 0
    names = set()
    for _ in range(n_matrices):
        name, fmt = reader.text("<H"), reader.text("<H")
        *shape, offset, n_bytes = reader.unpack(_PLACE)
        if offset % ALIGNMENT or not end <= offset <= data_bytes or n_bytes > data_bytes - offset:
            raise reader.error(
                f"matrix {name!r}: found {n_bytes} bytes at {offset} (need them after {end}, "
                f"within {data_bytes}, at a multiple of {ALIGNMENT})"
            )
        if name in names:
            raise reader.error(f"matrix {name!r}: found twice (need each name once)")
        names.add(name)
        end = offset + n_bytes
        yield Place(MatrixKey(name, fmt, *shape), offset, n_bytes)
    if reader.left:
        raise reader.error(f"found {reader.left} bytes after the last matrix (need none)")


def _chunks(header: Header, matrices: Sequence[MatrixToPack]) -> Iterator[memoryview]:
    """Yield the data, whole huge pages at a time but for the last."""
    buffer = memoryview(bytearray(WRITE_BYTES))
    n = 0
    for piece in _pieces(header, matrices):
        while len(piece):
            taken = min(len(piece), WRITE_BYTES - n)
            buffer[n : n + taken] = piece[:taken]
            piece, n = piece[taken:], n + taken
            if n == WRITE_BYTES:
                yield buffer
                n = 0
    yield buffer[:n]


def _pieces(header: Header, matrices: Sequence[MatrixToPack]) -> Iterator[memoryview]:
    end = 0
    for matrix, place in zip(matrices, header.places, strict=True):
        yield memoryview(bytes(place.offset - end))
        for piece in matrix.pieces():
            yield memoryview(piece.data)
        end = place.offset + place.n_bytes


def _checksum(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=32, person=b"edgeinfer-pack")
    for part in parts:
        digest.update(part)
    return digest.digest()
