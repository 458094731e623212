"""Define Imatrix: how much each column of each matrix counts, by the squares of what it met.

The importance of a column is the mean square of the activations it was multiplied with while a
model read a text: an error of a weight there costs that much. Knows no file and no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Of one tensor: a row each of its matrices, which are one, or its experts.

    squares: float64 (n_matrices, n_columns), the sum of x * x over the inputs of each. counts:
    float64 (n_matrices,), how many inputs that were.
    """

    squares: Floats
    counts: Floats

    @classmethod
    def zeros(cls, n_matrices: int, n_columns: int) -> "Sums":
        """Return sums of nothing yet."""
        return cls(np.zeros((n_matrices, n_columns)), np.zeros(n_matrices))

    def add(self, matrix: int, inputs: npt.NDArray[np.float32]) -> None:
        """Add rows, (n, n_columns), that a matrix was multiplied with."""
        self.squares[matrix] += np.square(inputs, dtype=np.float64).sum(axis=0)
        self.counts[matrix] += len(inputs)

    def parted(self, n_matrices: int) -> "Sums":
        """Return sums of a single row as `n_matrices`, the count of each that of the row.

        Others, and such as cannot be parted, are returned as they are.
        """
        if len(self.squares) != 1 or self.squares.size % n_matrices:
            return self
        return Sums(self.squares.reshape(n_matrices, -1), np.repeat(self.counts, n_matrices))

    def means(self) -> npt.NDArray[np.float32]:
        """Return the mean squares, (n_columns,) or, of experts, (n_matrices, n_columns) float32.

        A matrix without any input has ones: all of its columns count alike.
        """
        met = self.counts > 0
        means = np.ones(self.squares.shape)
        means[met] = self.squares[met] / self.counts[met, np.newaxis]
        return (means[0] if len(means) == 1 else means).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Imatrix:
    """The sums of each tensor, by its name in the model file.

    datasets: names of the texts. n_chunks: how many windows of `chunk_size` tokens were read.
    origin: a hash of the model and all that it read, "" if it is not known.
    """

    sums: Mapping[str, Sums]
    datasets: tuple[str, ...] = ()
    n_chunks: int = 0
    chunk_size: int = 0
    origin: str = ""
    where: str = "imatrix"

    def means(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the importance of the columns of each tensor, as `Sums.means` has it."""
        return {name: sums.means() for name, sums in self.sums.items()}


def merged(parts: Sequence[Imatrix]) -> Imatrix:
    """Return what all parts saw together.

    Experts that stand in one row, as in the form before GGUF, are parted where another part has
    them apart; each is taken to have met as many inputs as all.

    Raises InvalidParameterError if a tensor has another shape in one of them.
    """
    sums: dict[str, Sums] = {}
    for part in parts:
        for name, more in part.sums.items():
            found = sums.get(name)
            if found is None:
                sums[name] = more
                continue
            n_matrices = max(len(found.squares), len(more.squares))
            found, more = found.parted(n_matrices), more.parted(n_matrices)
            if found.squares.shape != more.squares.shape:
                raise InvalidParameterError(
                    f"{part.where}: tensor '{name}': found {more.squares.shape} sums "
                    f"(need {found.squares.shape}, as in the others: all of one model)"
                )
            sums[name] = Sums(found.squares + more.squares, found.counts + more.counts)
    datasets = dict.fromkeys(name for part in parts for name in part.datasets)
    sizes = [part.chunk_size for part in parts if part.chunk_size]
    return Imatrix(
        sums,
        tuple(datasets),
        sum(part.n_chunks for part in parts),
        sizes[0] if sizes else 0,
    )
