"""Describe tensors to be written as rows that are read when they are needed.

A `Weights` is a shape and a function that returns some of its rows; the functions here make new
ones from others, and nothing is read before `rows`. A vector counts as a matrix of one column, so
that a bias can be reordered as its matrix is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.convert.safetensors import DTYPES, Stored
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote

Floats = npt.NDArray[np.float32]
MXFP4_BYTES = 16  # of the codes of a block
MOST_UNUSED = 2  # rows read a row needed: a stretch is read at once, every second row of it too

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A tensor to be written.

    Attributes:
        shape: in NumPy order.
        dtype: a name of safetensors.DTYPES; what `take` returns. Or "MXFP4": bytes of that format.
        take: row numbers, (n,), to those rows, (n, n_columns); of MXFP4, (n, bytes of a row).
        change: applied to decoded values, None to leave them.
    """

    shape: tuple[int, ...]
    dtype: str
    take: Callable[[Index], npt.NDArray[Any]]
    change: Callable[[Floats], Floats] | None = None

    @property
    def n_columns(self) -> int:
        """Values of a row; 1 for a vector."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def n_rows(self) -> int:
        """Rows over all leading axes; for a vector, its values."""
        return math.prod(self.shape) // self.n_columns

    def rows(self, first: int, last: int) -> Floats:
        """Return some rows as float32, (last - first, n_columns)."""
        values = _decoded(self.take(np.arange(first, last)), self.dtype)
        return values if self.change is None else self.change(values)


def stored(tensor: Stored) -> Weights:
    """Return a checkpoint's tensor as it is. Raises ModelFormatError for one without values."""
    shape = tensor.shape or (1,)
    if 0 in shape:
        raise ModelFormatError(f"tensor {quote(tensor.name)}: found shape {shape} (need no 0)")
    n_columns = shape[-1] if len(shape) > 1 else 1
    kind = DTYPES[tensor.dtype]
    take = _taker(tensor, n_columns * kind.itemsize)
    return Weights(shape, tensor.dtype, lambda rows: take(rows).view(kind))


def computed(values: npt.ArrayLike) -> Weights:
    """Return a vector that no checkpoint has. Raises ModelFormatError if one is no number."""
    with np.errstate(over="ignore"):
        matrix = np.asarray(values, np.float32).reshape(-1, 1)
    if not np.isfinite(matrix).all():
        raise ModelFormatError("key 'rope_parameters': found factors that 32 bits cannot hold")
    return Weights((len(matrix),), "F32", lambda rows: matrix[rows])


def mxfp4(blocks: Stored, scales: Stored) -> Weights:
    """Return a tensor of blocks of 32 values with a scale each, as GGUF packs them.

    Of the two codes in a byte, the first is the next value in the checkpoint, and in GGUF the value
    16 further on.
    """
    n_blocks = blocks.shape[-2]
    codes, exponents = _taker(blocks, n_blocks * MXFP4_BYTES), _taker(scales, n_blocks)

    def take(rows: Index) -> npt.NDArray[Any]:
        pairs = codes(rows).reshape(-1, n_blocks, MXFP4_BYTES)
        values = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], 32)
        packed = values[..., :16] | (values[..., 16:] << 4)
        scaled = exponents(rows)[..., None]
        return np.concatenate([scaled, packed], axis=-1).reshape(len(rows), -1)

    return Weights((*blocks.shape[:-2], 32 * n_blocks), "MXFP4", take)


def reordered(weights: Weights, order: npt.ArrayLike) -> Weights:
    """Return the rows in this order, (n,); a matrix or vector may lose or repeat some."""
    index = np.asarray(order, np.intp)
    shape = (len(index), *weights.shape[1:])
    return replace(weights, shape=shape, take=lambda rows: weights.take(index[rows]))


def reshaped(weights: Weights, *shape: int) -> Weights:
    """Return the same values in another shape, which must have as many."""
    made = replace(weights, shape=shape)
    if math.prod(shape) != math.prod(weights.shape):
        raise ModelFormatError(f"found a tensor of {weights.shape} (need one of {shape})")
    if made.n_columns == weights.n_columns and made.n_rows == weights.n_rows:
        return made
    whole = weights.take(np.arange(weights.n_rows)).reshape(made.n_rows, made.n_columns)
    return replace(made, take=lambda rows: whole[rows])


def transposed(weights: Weights) -> Weights:
    """Return a matrix with rows and columns exchanged."""
    n_rows, n_columns = weights.shape

    def take(rows: Index) -> npt.NDArray[Any]:
        return weights.take(np.arange(n_rows)).T[rows]

    return replace(weights, shape=(n_columns, n_rows), take=take)


def stacked(parts: Sequence[Weights]) -> Weights:
    """Return one tensor of parts of equal shape, which become its first axis."""
    first = parts[0]
    n = first.n_rows if len(first.shape) > 1 else 1

    def take(rows: Index) -> npt.NDArray[Any]:
        if len(first.shape) == 1:
            return np.concatenate([parts[i].take(np.arange(first.n_rows)).T for i in rows])
        of = rows // n
        taken = [parts[i].take(rows[of == i] - i * n) for i in np.unique(of)]
        # A stable order of the parts is the order in which their rows were taken.
        return np.concatenate(taken)[np.argsort(np.argsort(of, kind="stable"))]

    return replace(first, shape=(len(parts), *first.shape), take=take)


def part(weights: Weights, index: int) -> Weights:
    """Return one entry along the first axis, as of stacked experts."""
    shape = weights.shape[1:]
    if len(shape) == 1:
        whole = weights.take(np.array([index])).reshape(-1, 1)
        return replace(weights, shape=shape, take=lambda rows: whole[rows])
    n = weights.n_rows // weights.shape[0]
    return replace(weights, shape=shape, take=lambda rows: weights.take(rows + index * n))


def changed(weights: Weights, change: Callable[[Floats], Floats]) -> Weights:
    """Return the values changed by a function, after what changes them already."""
    before = weights.change
    both = change if before is None else lambda values: change(before(values))
    return replace(weights, change=both)


def _taker(tensor: Stored, row_bytes: int) -> Callable[[Index], npt.NDArray[np.uint8]]:
    """Return a function that reads some rows, (n, row_bytes), in as few pieces as make sense."""

    def take(rows: Index) -> npt.NDArray[np.uint8]:
        if not len(rows):
            return np.empty((0, row_bytes), np.uint8)
        first, n = int(rows.min()), int(rows.max() - rows.min()) + 1
        if n <= MOST_UNUSED * len(rows):
            found = tensor.read(first * row_bytes, n * row_bytes).reshape(n, row_bytes)
            return (
                found if np.array_equal(rows, np.arange(first, first + n)) else found[rows - first]
            )
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        runs = ((int(run[0]), len(run)) for run in np.split(rows, cuts))
        parts = [tensor.read(at * row_bytes, n * row_bytes) for at, n in runs]
        return np.concatenate(parts).reshape(len(rows), row_bytes)

    return take


def rows_times(weights: Weights, factors: Floats) -> Weights:
    """Return each row multiplied by its own factor, (n_rows,)."""
    change = weights.change or (lambda values: values)

    def take(rows: Index) -> npt.NDArray[Any]:
        return change(_decoded(weights.take(rows), weights.dtype)) * factors[rows, None]

    return Weights(weights.shape, "F32", take)


def _decoded(raw: npt.NDArray[Any], dtype: str) -> Floats:
    if dtype == "BF16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw.astype(np.float32)
