"""Name the things ops work on: values, weights and constants, each with its size.

A value is a flat row-major matrix `[rows, width]`; heads, groups and experts are attributes of the
ops that need them, so nothing is ever reshaped. Knows no arrays and no backend.
"""

from dataclasses import dataclass
from enum import Enum
from math import prod

from edgeinfer.errors import ModelFormatError

MAX_WIDTH = 1 << 30  # columns of one value; keeps every byte count of a backend below 2^63


class Rows(Enum):
    """How many rows a value has in a step; printed as T, R, S."""

    TOKENS = "T"  # one row for each token of the step
    WANTED = "R"  # one row for each token whose logits are wanted
    SEQUENCES = "S"  # one row for each sequence


class Use(Enum):
    """What an op does with a weight, which decides the formats it may have."""

    MATRIX = "matrix"  # multiplied: every format
    TABLE = "table"  # rows looked up: every format
    VECTOR = "vector"  # added or multiplied element by element: F32, F16 or BF16


@dataclass(frozen=True, slots=True)
class Value:
    """One matrix of the program; float32, or int32 where `is_ids` (chosen experts)."""

    id: int
    width: int
    rows: Rows
    is_ids: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MAX_WIDTH:
            raise ModelFormatError(
                f"program: value {self.id}: width: found {self.width} (need 1 to {MAX_WIDTH})"
            )


@dataclass(frozen=True, slots=True)
class WeightRef:
    """A tensor the file must have: GGUF name, and the NumPy shape (rows, columns) it must have."""

    name: str
    shape: tuple[int, ...]
    use: Use

    @property
    def size(self) -> int:
        """Count the elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class ConstantRef:
    """A small float32 vector owned by the program: `program.constants[index]`, `length` long."""

    index: int
    length: int
