"""Lay out and write one GGUF file front to back: all sizes are known before the first byte.

The layout is that of `loader/gguf.py`, version 3. Tensor data comes as pieces in file order, so
memory is that of a piece. Knows no format's arithmetic and no file name.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.loader.fields import padded
from edgeinfer.loader.gguf import DEFAULT_ALIGNMENT
from edgeinfer.quant.formats import Format
from edgeinfer.writer.entries import Entry, encode, text_bytes

Bytes = npt.NDArray[np.uint8]

VERSION = 3


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor to be written; `shape` is in NumPy order, as the loader's."""

    name: str
    shape: tuple[int, ...]
    format: Format

    @property
    def n_bytes(self) -> int:
        """Bytes of its data."""
        n_rows = 1
        for n in self.shape[:-1]:
            n_rows *= n
        return n_rows * self.format.row_bytes(self.shape[-1])


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file to be written: its header's bytes, padded, and the tensors that follow."""

    header: bytes
    tensors: tuple[TensorPlan, ...]
    alignment: int

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.header) + sum(padded(t.n_bytes, self.alignment) for t in self.tensors)


def plan(entries: Sequence[Entry], tensors: Sequence[TensorPlan]) -> FilePlan:
    """Lay out a file with this metadata and these tensors; `general.alignment` is respected."""
    alignment = alignment_of(entries)
    parts = [b"GGUF", struct.pack("<IQQ", VERSION, len(tensors), len(entries))]
    parts += map(encode, entries)
    offset = 0
    for tensor in tensors:
        parts.append(text_bytes(tensor.name))
        parts.append(struct.pack("<I", len(tensor.shape)))
        parts += (struct.pack("<Q", n) for n in reversed(tensor.shape))
        parts.append(struct.pack("<IQ", tensor.format.ggml_id, offset))
        offset += padded(tensor.n_bytes, alignment)
    header = b"".join(parts)
    return FilePlan(header.ljust(padded(len(header), alignment), b"\0"), tuple(tensors), alignment)


def alignment_of(entries: Sequence[Entry]) -> int:
    """Return the alignment that the metadata asks for."""
    for entry in entries:
        if entry.key == "general.alignment":
            assert isinstance(entry.value, int)
            return entry.value
    return DEFAULT_ALIGNMENT


def write(file: FilePlan, pieces: Iterator[Bytes], sink: Callable[[memoryview], None]) -> None:
    """Write a whole file.

    Args:
        pieces: the tensors' data, one after another without padding, cut anywhere but across two
            tensors.
        sink: takes the bytes in file order.
    """
    sink(memoryview(file.header))
    for tensor in file.tensors:
        left = tensor.n_bytes
        while left:
            piece = next(pieces)
            assert piece.nbytes <= left, f"{tensor.name}: {piece.nbytes} bytes, {left} are left"
            sink(piece.reshape(-1).view(np.uint8).data)
            left -= piece.nbytes
        sink(memoryview(bytes(padded(tensor.n_bytes, file.alignment) - tensor.n_bytes)))
