"""Define Tensor, the currency from the loader to the kernels: a name, a shape, a format, bytes."""

import math
import mmap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.quant.formats import Format


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One weight as stored.

    `shape` is in NumPy order: (rows, columns), GGUF's `ne` reversed; the last axis is contiguous.
    `data` is uint8, one-dimensional, read-only and exactly `n_bytes` long, most often a view of
    the mapped file (the view keeps the map alive).
    """

    name: str
    shape: tuple[int, ...]
    format: Format
    data: npt.NDArray[np.uint8]

    @property
    def is_mapped(self) -> bool:
        """Whether the bytes lie in the read-only map of a file, which can bring them back."""
        return (base := map_of(self.data)) is not None and memoryview(base).readonly

    @property
    def n_columns(self) -> int:
        """Values in one row."""
        return self.shape[-1]

    @property
    def n_rows(self) -> int:
        """Rows over all leading axes; 1 for a vector."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.format.row_bytes(self.shape[-1])

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.n_rows * self.row_bytes

    @property
    def row_data(self) -> npt.NDArray[np.uint8]:
        """The same bytes as (n_rows, row_bytes)."""
        return self.data.reshape(self.n_rows, self.row_bytes)


def map_of(view: npt.NDArray[np.uint8]) -> mmap.mmap | None:
    """Return the map of a file that an array is a view of; None if it is memory of another kind."""
    base: object = view
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None
