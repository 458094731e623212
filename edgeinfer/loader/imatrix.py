"""Read importance matrices: llama.cpp's GGUF form, and the .dat form before it.

The GGUF form has `general.type` "imatrix" and no architecture. A tensor NAME of the model has two
here, float32, in GGUF's order of dimensions: NAME.in_sum2 (n_columns, n_matrices), the sums of
squares, and NAME.counts (1, n_matrices). `imatrix.datasets` names the texts, `imatrix.chunk_count`
says how many windows of `imatrix.chunk_size` tokens were read. NAME.in_sum, plain sums, may be
there. edgeinfer adds `edgeinfer.imatrix.origin`, a hash of the model and of what it read.

The .dat form, integers i32, little-endian: number of entries; for each its name behind the name's
length, a count of windows, the number of values, values f32 that are `count` times the mean
squares; then, perhaps, the number of windows and the name of the text behind its length. Experts
stand in one row, with one count. The length of a window does not stand there: llama.cpp's default
of 512 is taken, so that such a file weighs as much as one of the GGUF form, which counts tokens.
"""

import logging
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeinfer.errors import ModelFormatError, ModelNotFoundError, ResourceError
from edgeinfer.loader.fields import FieldReader
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.quant.imatrix import Floats, Imatrix, Sums
from edgeinfer.quant.tensor import Tensor

log = logging.getLogger(__name__)

KIND = "imatrix"
ORIGIN = "edgeinfer.imatrix.origin"
SQUARES, COUNTS, PLAIN = ".in_sum2", ".counts", ".in_sum"
MOST_DAT_BYTES = 1 << 30
DAT_CHUNK_SIZE = 512
MOST_ENTRIES, MOST_CHARACTERS = 1 << 20, 1 << 10  # what tells a .dat file from any other
_I32 = struct.Struct("<i")


def read_imatrix(path: str | os.PathLike[str]) -> Imatrix:
    """Read an importance matrix in either form.

    Raises:
        ModelNotFoundError: no such file, or no permission.
        ModelFormatError: it is no importance matrix, or damaged, or holds NaN, infinity or negative
            sums.
    """
    path = Path(os.fsdecode(path))
    if not _begins_like_gguf(path):
        return _read_dat(path)
    with open_gguf(path) as file:
        return _from_gguf(file, display(path))


def _begins_like_gguf(path: Path) -> bool:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFormatError(f"{display(path)}: no regular file (need one)")
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(f"{display(path)}: {error}") from None


def _from_gguf(file: GgufFile, where: str) -> Imatrix:
    kind = file.metadata.text("general.type", "model")
    if kind != KIND:
        raise ModelFormatError(
            f"{where}: key 'general.type': found {kind!r} (need {KIND!r}); this is no importance "
            "matrix: `edgeinfer imatrix MODEL -f text` makes one"
        )
    tensors = file.tensors
    sums: dict[str, Sums] = {}
    n_others = 0
    for name in tensors:
        if name.endswith(SQUARES):
            base = name.removesuffix(SQUARES)
            sums[base] = _pair(where, tensors, base)
        elif name.endswith(COUNTS) and name.removesuffix(COUNTS) + SQUARES not in tensors:
            raise ModelFormatError(f"{where}: tensor '{name}': found without its {SQUARES}")
        elif not name.endswith((COUNTS, PLAIN)):
            n_others += 1
    if n_others:
        log.warning("%s: %d tensors are no part of an importance matrix", where, n_others)
    metadata = file.metadata
    return Imatrix(
        sums,
        tuple(metadata.strings("imatrix.datasets")) if "imatrix.datasets" in metadata else (),
        metadata.integer("imatrix.chunk_count", 0, least=0),
        metadata.integer("imatrix.chunk_size", 0, least=0),
        metadata.text(ORIGIN, ""),
        where,
    )


def _pair(where: str, tensors: dict[str, Tensor], base: str) -> Sums:
    if base + COUNTS not in tensors:
        raise ModelFormatError(f"{where}: tensor '{base}{SQUARES}': found without its {COUNTS}")
    squares, counts = (_values(where, tensors[base + suffix]) for suffix in (SQUARES, COUNTS))
    if counts.size != len(squares):
        raise ModelFormatError(
            f"{where}: tensor '{base}{COUNTS}': found {counts.size} counts "
            f"(need {len(squares)}, one a row of sums)"
        )
    return Sums(squares, counts.ravel())


def _values(where: str, tensor: Tensor) -> Floats:
    """Return the values as (n_rows, n_columns)."""
    if tensor.format.name != "F32":
        raise ModelFormatError(
            f"{where}: tensor '{tensor.name}': found format {tensor.format.name} (need F32)"
        )
    values = tensor.data.view("<f4").reshape(tensor.n_rows, tensor.n_columns)
    return _checked(where, tensor.name, values)


def _checked(where: str, name: str, values: np.ndarray) -> Floats:
    """Return the values in float64. Nothing that a sum of squares cannot be may weight an error."""
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ModelFormatError(
            f"{where}: tensor '{name}': found NaN, infinity or a negative sum (need sums of "
            "squares); the matrix was made from a damaged model or is damaged itself"
        )
    return values.astype(np.float64)


def _read_dat(path: Path) -> Imatrix:
    where = display(path)
    try:
        with path.open("rb") as file:
            body = file.read(MOST_DAT_BYTES + 1)
    except OSError as error:
        raise ResourceError(f"{where}: cannot read the file: {error.strerror}") from None
    if len(body) > MOST_DAT_BYTES:
        raise ModelFormatError(f"{where}: longer than {MOST_DAT_BYTES >> 20} MiB (need less)")
    if not _begins_like_dat(body):
        raise ModelFormatError(
            f"{where}: no importance matrix (need the GGUF form, which `edgeinfer imatrix MODEL -f "
            "text` writes, or llama.cpp's older .dat form)"
        )
    reader = FieldReader(
        body, lambda what: ModelFormatError(f"{where}: the importance matrix is damaged: {what}")
    )
    n_entries = _count(reader, "entries", least=1)
    sums = dict(_entries(where, reader, n_entries))
    if len(sums) < n_entries:
        raise ModelFormatError(f"{where}: found a name twice (need each once)")
    n_chunks = _count(reader, "chunks") if reader.left else 0
    datasets = (_name(reader),) if reader.left else ()
    return Imatrix(sums, datasets, n_chunks, DAT_CHUNK_SIZE, where=where)


def _begins_like_dat(body: bytes) -> bool:
    """Tell whether a number of entries and the length of a name stand there."""
    if len(body) < 2 * _I32.size:
        return False
    n_entries, length = (int(n) for (n,) in _I32.iter_unpack(body[: 2 * _I32.size]))
    return 0 < n_entries <= MOST_ENTRIES and 0 < length <= MOST_CHARACTERS


def _entries(where: str, reader: FieldReader, n_entries: int) -> Iterator[tuple[str, Sums]]:
    for _ in range(n_entries):
        name = _name(reader)
        count = max(1, _count(reader, "calls"))  # 0 says that the values are means already
        n_values = _count(reader, "values", least=1)
        values = np.frombuffer(reader.take(4 * n_values), "<f4").reshape(1, n_values)
        squares = _checked(where, name, values) * DAT_CHUNK_SIZE
        yield name, Sums(squares, np.array([float(count * DAT_CHUNK_SIZE)]))


def _name(reader: FieldReader) -> str:
    try:
        return reader.take(_count(reader, "characters")).decode()
    except UnicodeDecodeError:
        raise reader.error("found a name that is not UTF-8") from None


def _count(reader: FieldReader, what: str, *, least: int = 0) -> int:
    (found,) = reader.unpack(_I32)
    if found < least:
        raise reader.error(f"found {found} {what} (need at least {least})")
    return found
