"""Define matrices in the layout a backend computes on: one that is ready, one still to be laid out.

Same bits as the tensor, in another order; which order is the backend's affair. Knows no file.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MatrixKey:
    """What a laid-out matrix must agree in with the tensor it stands for.

    A tensor of experts is `n_matrices` of `n_rows` each; any other is one matrix.
    """

    name: str
    format: str
    n_matrices: int
    n_rows: int
    n_columns: int


@dataclass(frozen=True, slots=True, eq=False)
class PackedMatrix:
    """A matrix laid out before; `data` is read-only, most often a view of a mapped file."""

    key: MatrixKey
    data: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class MatrixToPack:
    """A matrix to be laid out: `pieces` makes its `n_bytes` bytes in order, a few MB at a time."""

    key: MatrixKey
    n_bytes: int
    pieces: Callable[[], Iterator[Bytes]]
