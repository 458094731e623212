"""Open a GGUF file or split set: metadata and tensors, mapped, nothing copied, all lengths checked.

Layout of a file (version 2 and 3, little-endian; the GGUF specification of the ggml project):

    magic "GGUF"  version u32  n_tensors u64  n_kv u64
    n_kv times      key string, value type u32, value
    n_tensors times name string, n_dims u32, dims u64 each, type id u32, offset u64
    padding to the alignment, then tensor data, each tensor padded to the alignment

A string is a u64 length and UTF-8 bytes. Offsets count from the start of the data and must be the
running sum of the padded sizes: no holes, no overlaps, nothing hidden between tensors.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from edgeinfer.errors import ModelClosedError, ResourceError, UnsupportedModelError
from edgeinfer.loader import shards
from edgeinfer.loader.cursor import MAX_KEY_BYTES, Cursor, Value, quote
from edgeinfer.loader.mapped import FileIdentity, display, identify, map_file
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.formats import Format, by_id
from edgeinfer.quant.tensor import Tensor

VERSIONS = (2, 3)
MAX_TENSOR_NAME = 64
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32

# Far above any real model (thousands of tensors, a hundred keys); they bound what a hostile
# file of many tiny records can make us allocate.
MAX_TENSORS = 1 << 17
MAX_KEYS = 1 << 16

_MIN_KEY_RECORD = 8 + 1 + 4 + 1  # length, one letter, type, one byte of value
_MIN_TENSOR_RECORD = 8 + 1 + 4 + 8 + 4 + 8  # length, one letter, n_dims, one dim, type, offset
_MAX_SIGNED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model, the whole or a shard; tensor data begins at byte `data_start`.

    extents: where each tensor's bytes begin, and how many they are, in file order.
    """

    path: Path
    identity: FileIdentity
    version: int
    alignment: int
    data_start: int
    extents: tuple[tuple[int, int], ...]


class GgufFile:
    """An opened model file (all shards of a split set together).

    Ownership: tensors and metadata are views of the mapped file. `close` lets go of this object's
    own; views taken out before stay valid, and the map goes when the last of them does.
    """

    __slots__ = ("_metadata", "_parts", "_tensors", "_warnings")

    def __init__(
        self,
        parts: tuple[Part, ...],
        metadata: Metadata,
        tensors: dict[str, Tensor],
        warnings: tuple[str, ...],
    ) -> None:
        self._parts = parts
        self._metadata: Metadata | None = metadata
        self._tensors: dict[str, Tensor] | None = tensors
        self._warnings = warnings

    @property
    def path(self) -> Path:
        """The file opened; of a split set, its first shard."""
        return self._parts[0].path

    @property
    def version(self) -> int:
        """GGUF version of the first part."""
        return self._parts[0].version

    @property
    def alignment(self) -> int:
        """Alignment of tensor data of the first part, in bytes."""
        return self._parts[0].alignment

    @property
    def parts(self) -> tuple[Part, ...]:
        """The files, in shard order; one unless the set is split."""
        return self._parts

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(part.identity.n_bytes for part in self._parts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the files yet harmless, one sentence each."""
        return self._warnings

    @property
    def metadata(self) -> Metadata:
        """Key-value pairs (of the first shard). Raises ModelClosedError after close()."""
        if self._metadata is None:
            raise ModelClosedError(f"{display(self.path)}: the file is closed")
        return self._metadata

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors by name, in file order. Raises ModelClosedError after close()."""
        if self._tensors is None:
            raise ModelClosedError(f"{display(self.path)}: the file is closed")
        return self._tensors

    def check_unchanged(self) -> None:
        """Raise ResourceError if a file was changed, replaced or removed since it was opened.

        Of a file that shrank, what lay beyond its end cannot be read: ask before each use.
        """
        for part in self._parts:
            where = display(part.path)
            try:
                found = identify(part.path)
            except OSError as error:
                raise ResourceError(
                    f"{where}: the model file is gone since it was opened: {error.strerror}; "
                    "put it back or load the model again"
                ) from None
            if found != part.identity:
                raise _changed(part, found)

    def check_contents(self) -> None:
        """Raise ResourceError if a file was written to since it was opened.

        One that was replaced or removed is still what is mapped.
        """
        for part in self._parts:
            try:
                found = identify(part.path)
            except OSError:
                continue
            if found.is_same_file(part.identity) and found != part.identity:
                raise _changed(part, found)

    def close(self) -> None:
        """Let go of metadata and tensors; safe to call twice and while views are alive."""
        self._metadata = None
        self._tensors = None

    def __enter__(self) -> "GgufFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _changed(part: Part, found: FileIdentity) -> ResourceError:
    return ResourceError(
        f"{display(part.path)}: the model file changed on disk since it was opened: found "
        f"{found.n_bytes} bytes (opened with {part.identity.n_bytes}); load the model again"
    )


def open_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Open a GGUF file, or a split set by its first shard; map the tensors, copy nothing.

    Raises:
        ModelNotFoundError: no such file, or no permission.
        ModelFormatError: not GGUF, of another version or byte order, damaged, truncated, or an
            incomplete split set.
        UnsupportedModelError: a tensor has a type unknown here.
        ResourceError: the operating system cannot read or map it.
    """
    part, metadata, tensors, warnings = _open_part(Path(os.fsdecode(path)))
    parts = [part]
    for shard in shards.others(part.path, metadata):
        part, shard_metadata, shard_tensors, shard_warnings = _open_part(shard.path)
        shards.check(shard, metadata, shard_metadata)
        shards.merge(shard, tensors, shard_tensors)
        parts.append(part)
        warnings += shard_warnings
    shards.check_total(display(parts[0].path), metadata, len(tensors))
    return GgufFile(tuple(parts), metadata, tensors, warnings)


def _open_part(path: Path) -> tuple[Part, Metadata, dict[str, Tensor], tuple[str, ...]]:
    buffer, identity = map_file(path)
    cursor = Cursor(buffer, display(path), 4)
    version, n_tensors, n_keys = _read_header(cursor)
    metadata = _read_metadata(cursor, n_keys)
    alignment = _alignment(metadata)
    infos = [_read_tensor_info(cursor, i) for i in range(n_tensors)]
    data_start = _padded(cursor.position, alignment)
    tensors, end = _place_tensors(cursor, infos, data_start, alignment)
    warnings = _trailing(cursor, end, alignment)
    extents = tuple((data_start + info.offset, info.n_bytes) for info in infos)
    part = Part(path, identity, version, alignment, data_start, extents)
    return part, metadata, tensors, warnings


def _read_header(cursor: Cursor) -> tuple[int, int, int]:
    version = cursor.u32("version")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *VERSIONS):
            raise cursor.error(
                "found a big-endian file (need little-endian); "
                "get the little-endian file of this model"
            )
        raise cursor.error(
            f"found GGUF version {version} (need 2 or 3); get a current file of this model"
        )
    n_tensors = cursor.u64("number of tensors")
    n_keys = cursor.u64("number of keys")
    for what, count, record, most in (
        ("tensors", n_tensors, _MIN_TENSOR_RECORD, MAX_TENSORS),
        ("keys", n_keys, _MIN_KEY_RECORD, MAX_KEYS),
    ):
        if count > min(cursor.left // record, most):
            raise cursor.error(
                f"found {count} {what} (need at most {min(cursor.left // record, most)}: "
                f"{cursor.left} bytes are left); the file is truncated or damaged"
            )
    return version, n_tensors, n_keys


def _read_metadata(cursor: Cursor, n_keys: int) -> Metadata:
    values: dict[str, Value] = {}
    types: dict[str, str] = {}
    for i in range(n_keys):
        cursor.context = f"key {i} of {n_keys}"
        key = cursor.name("key", MAX_KEY_BYTES)
        cursor.context = f"key {quote(key)}"
        if key in values:
            raise cursor.error("found twice (need each key once)")
        values[key], types[key] = cursor.value()
    return Metadata(values, where=cursor.file, types=types)


def _alignment(metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    if metadata.type_name(key) != "u32":
        raise metadata.error(key, f"found type {metadata.type_name(key)} (need u32)")
    alignment = metadata.integer(key)
    if alignment & (alignment - 1) or not 8 <= alignment <= 65536:
        raise metadata.error(key, f"found {alignment} (need a power of two, 8 to 65536)")
    return alignment


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    shape: tuple[int, ...]
    format: Format
    offset: int
    n_bytes: int


def _read_tensor_info(cursor: Cursor, index: int) -> _TensorInfo:
    cursor.context = f"tensor {index}"
    name = cursor.name("name", MAX_TENSOR_NAME)
    cursor.context = f"tensor {quote(name)}"
    n_dims = cursor.u32("number of dimensions")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"found {n_dims} dimensions (need 1 to {MAX_DIMS})")
    dims = [cursor.u64("dimension") for _ in range(n_dims)]
    n_values = 1
    for dim in dims:
        n_values *= dim
        if not 1 <= n_values <= _MAX_SIGNED:
            raise cursor.error(f"found dimensions {dims} (need each at least 1, product < 2^63)")
    try:
        fmt = by_id(cursor.u32("type"))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{cursor.where}: {error}") from None
    if dims[0] % fmt.block_size:
        raise cursor.error(
            f"found rows of {dims[0]} values (need a multiple of {fmt.block_size}, "
            f"the block size of {fmt.name})"
        )
    n_bytes = n_values // fmt.block_size * fmt.block_bytes
    return _TensorInfo(name, tuple(reversed(dims)), fmt, cursor.u64("offset"), n_bytes)


def _place_tensors(
    cursor: Cursor, infos: list[_TensorInfo], data_start: int, alignment: int
) -> tuple[dict[str, Tensor], int]:
    """Return the tensors and where the last one's bytes end."""
    size = len(cursor.buffer)
    tensors: dict[str, Tensor] = {}
    end = data_start
    for info in infos:
        cursor.context = f"tensor {quote(info.name)}"
        start = _padded(end, alignment)
        if info.name in tensors:
            raise cursor.error("found twice (need each name once)")
        if info.offset != start - data_start:
            raise cursor.error(
                f"found offset {info.offset} (need {start - data_start}, the end of the tensor "
                f"before it, padded to {alignment})"
            )
        end = start + info.n_bytes
        if end > size:
            needed = data_start + sum(_padded(other.n_bytes, alignment) for other in infos)
            raise cursor.error(
                f"its bytes end at {end}, the file at {size} (need about {needed}); "
                f"file truncated? {size / 1e6:.1f} of {needed / 1e6:.1f} MB are here"
            )
        tensors[info.name] = Tensor(info.name, info.shape, info.format, cursor.buffer[start:end])
    return tensors, end


def _trailing(cursor: Cursor, end: int, alignment: int) -> tuple[str, ...]:
    extra = len(cursor.buffer) - _padded(end, alignment)
    if extra <= 0:
        return ()
    return (f"{cursor.file}: {extra} bytes after the last tensor are ignored",)


def _padded(n_bytes: int, alignment: int) -> int:
    """Round up to the alignment."""
    return -(-n_bytes // alignment) * alignment
