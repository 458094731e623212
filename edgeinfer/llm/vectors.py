"""Make one vector of the rows of a text's tokens, and numbers of what a head gives.

Every sum has its order: a vector does not depend on how its rows came, or on the machine.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError

Floats = npt.NDArray[np.float32]
Pooling = Literal["mean", "cls", "last"]
ROWS_AT_ONCE = 1024  # in float64


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document's place among those of a query.

    index: where it stands in the list that was given. score: how well it answers the query, 0 to 1
    unless raw scores were asked for. n_tokens: of query and document, with what the model wants
    around them.
    """

    index: int
    score: float
    n_tokens: int


def checked_pooling(pooling: str | None) -> Pooling | None:
    """Return a kind of pooling; None stays."""
    for known in get_args(Pooling):
        if pooling == known:
            return known  # type: ignore[no-any-return]
    if pooling is None:
        return None
    names = ", ".join(map(repr, get_args(Pooling)))
    raise InvalidParameterError(f"pooling: found {pooling!r} (need one of {names}, or None)")


def checked_dimensions(dimensions: int | None, width: int) -> int:
    """Return how many numbers of each vector to keep; None is all."""
    if dimensions is None:
        return width
    is_int = isinstance(dimensions, int) and not isinstance(dimensions, bool)
    if not is_int or not 1 <= dimensions <= width:
        raise InvalidParameterError(
            f"dimensions: found {dimensions!r} (need 1 to {width}, the size of the model's "
            "embeddings, or None)"
        )
    return dimensions


class Rows:
    """The rows of a text as they come, some at a time, and what is made of them."""

    def __init__(self, pooling: Pooling | None) -> None:
        """Keep what `pooling` needs of them; None keeps all."""
        self._pooling = pooling
        self._kept: list[Floats] = []
        self._n = 0

    def first_of(self, n: int) -> int:
        """Return the first row that is needed of a text of n tokens."""
        return n - 1 if self._pooling == "last" else 0

    def add(self, rows: Floats) -> None:
        """Take the next rows, (n, width)."""
        self._n += len(rows)
        if self._pooling == "mean":
            total = self._kept.pop() if self._kept else np.zeros(rows.shape[1], np.float32)
            for row in rows:  # np.sum may take them in another order
                total += row
            self._kept.append(total)
        elif self._pooling == "last":
            self._kept = [rows[-1].copy()]
        elif self._pooling == "cls":
            self._kept = self._kept or [rows[0].copy()]
        else:
            self._kept.append(rows)

    def made(self) -> Floats:
        """Return the vector, (width,), or all rows, (n, width)."""
        if self._pooling is None:
            return np.concatenate(self._kept)
        return self._kept[0] / np.float32(self._n) if self._pooling == "mean" else self._kept[0]


def cut_and_normalized(vectors: Floats, dimensions: int, *, normalize: bool) -> Floats:
    """Return the first `dimensions` numbers of each row, scaled to length 1 if that is wanted.

    A vector of zeros stays one.
    """
    made = np.ascontiguousarray(vectors[:, :dimensions])
    if normalize:
        for first in range(0, len(made), ROWS_AT_ONCE):
            exact = made[first : first + ROWS_AT_ONCE].astype(np.float64)
            squares = np.add.accumulate(exact * exact, axis=1)[:, -1:]  # from left to right
            lengths = np.sqrt(squares)
            lengths[lengths == 0] = 1.0
            made[first : first + ROWS_AT_ONCE] = exact / lengths
    return made


def likelihood(score: float) -> float:
    """Return the share of 1 that the logit of a yes means."""
    small = math.exp(-abs(score))  # 0 to 1, so that nothing overflows
    return float(np.float32((1.0 if score >= 0 else small) / (1.0 + small)))
