"""Find the formats that fit a size, or a cost: what each adds is measured on a matrix's rows.

The noise of a format is the part of a matrix's output that it changes: the squared error over the
square, weighted by importance where that is known. Its cost is the noise times how much a model
suffers from noise there. From the best format for everything the search goes down, each time by
the step that loses the least for the bytes it saves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.fields import padded
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.recipe import fitting
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.conversion import Encode, Piece, Source
from edgeinfer.quantizing.decoding import decoder

Floats = npt.NDArray[np.float32]

# The older formats are for rows that are not whole blocks of 256.
LADDER = (
    *("Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "IQ4_NL", "IQ4_XS", "Q4_0"),
    *("Q3_K", "Q2_K"),
)
SAMPLES = 8  # places in a matrix, of
SAMPLE_ROWS = 16  # rows each, as many as are encoded together


@dataclass(frozen=True, slots=True)
class Option:
    """A format a tensor could have: the bytes it takes, padding included, and what it costs."""

    format: str
    n_bytes: int
    cost: float


Options = Mapping[str, Sequence[Option]]  # of each tensor, by name


@dataclass(frozen=True, slots=True)
class _Step:
    """A tensor's change to its next smaller format."""

    loss_a_byte: float
    name: str
    index: int  # of the option it leads to
    saved: int


def measured(
    source: Source,
    tensor: Tensor,
    importance: Floats | None,
    encode: Encode,
    *,
    alignment: int,
) -> list[Option]:
    """Return the options of a tensor, the largest first, those that another beats left out.

    What they cost is their noise. `importance` is as in `conversion.pieces_of`.
    """
    samples = list(_samples(source, tensor, importance))
    total = sum(_energy(rows, columns) for _, rows, columns in samples)
    options = []
    for name in dict.fromkeys(fitting(name, tensor.n_columns) for name in LADDER):
        fmt = FORMATS[name]
        noise = 0.0
        for place, rows, columns in samples:
            coded = encode(Piece(tensor, fmt, place, columns), rows)
            found = decoder()(Tensor(tensor.name, rows.shape, fmt, coded.reshape(-1)))
            noise += _energy(found - rows, columns)
        n_bytes = padded(tensor.n_rows * fmt.row_bytes(tensor.n_columns), alignment)
        options.append(Option(name, n_bytes, noise / total if total else 0.0))
    return _hull(sorted(options, key=lambda option: -option.n_bytes))


def weighed(options: Sequence[Option], weight: float) -> list[Option]:
    """Return options with their costs multiplied."""
    return [replace(option, cost=weight * option.cost) for option in options]


@dataclass(frozen=True, slots=True)
class Fit:
    """A format for each tensor, and what all together take and cost."""

    formats: dict[str, str]
    n_bytes: int
    cost: float


def fit_bytes(options: Options, most_bytes: int, *, other_bytes: int = 0) -> Fit:
    """Return formats that, with `other_bytes`, take at most `most_bytes` and cost little.

    Raises InvalidParameterError, with the least bytes possible, if none do.
    """
    most_bytes -= other_bytes
    chosen = dict.fromkeys(options, 0)
    total = sum(of[0].n_bytes for of in options.values())
    least = sum(of[-1].n_bytes for of in options.values())
    if least > most_bytes:
        raise InvalidParameterError(
            f"max_bytes: found {most_bytes + other_bytes} bytes (need {least + other_bytes} at "
            "least); allow more or take a smaller model"
        )
    taken = []
    for step in _steps(options):
        if total <= most_bytes:
            break
        chosen[step.name] = step.index
        total -= step.saved
        taken.append(step)
    # The last step may have saved more than was needed: take back what still fits.
    for step in reversed(taken):
        if chosen[step.name] == step.index and total + step.saved <= most_bytes:
            chosen[step.name] -= 1
            total += step.saved
    return _fit(options, chosen)


def fit_cost(options: Options, most_cost: float) -> Fit:
    """Return formats that together cost at most `most_cost` and take few bytes.

    Where none cost so little, those that cost the least.
    """
    chosen = dict.fromkeys(options, 0)
    left = most_cost - sum(of[0].cost for of in options.values())
    for step in _steps(options):
        lost = step.loss_a_byte * step.saved
        if chosen[step.name] == step.index - 1 and lost <= left:
            chosen[step.name] = step.index
            left -= lost
    return _fit(options, chosen)


def _fit(options: Options, chosen: Mapping[str, int]) -> Fit:
    found = {name: options[name][index] for name, index in chosen.items()}
    return Fit(
        {name: option.format for name, option in found.items()},
        sum(option.n_bytes for option in found.values()),
        sum(option.cost for option in found.values()),
    )


def _steps(options: Options) -> list[_Step]:
    """Return every step down, the one that loses least a byte first."""
    steps = []
    for name, of in options.items():
        for index in range(1, len(of)):
            before, after = of[index - 1], of[index]
            saved = before.n_bytes - after.n_bytes
            steps.append(_Step((after.cost - before.cost) / saved, name, index, saved))
    return sorted(steps, key=lambda step: (step.loss_a_byte, step.name, step.index))


def _hull(options: Sequence[Option]) -> list[Option]:
    """Leave out what is beaten: each step down then loses more a byte than the one before."""
    kept: list[Option] = []
    for option in options:
        while kept and option.cost <= kept[-1].cost:
            kept.pop()
        if kept and option.n_bytes == kept[-1].n_bytes:
            continue
        while len(kept) > 1 and _slope(kept[-1], option) <= _slope(kept[-2], kept[-1]):
            kept.pop()
        kept.append(option)
    return kept


def _slope(larger: Option, smaller: Option) -> float:
    return (smaller.cost - larger.cost) / (larger.n_bytes - smaller.n_bytes)


def _samples(
    source: Source, tensor: Tensor, importance: Floats | None
) -> Iterator[tuple[slice, Floats, Floats | None]]:
    """Yield some rows, where they are, and the importance of their columns."""
    n_matrices = tensor.shape[-3] if len(tensor.shape) > 2 else 1
    a_matrix = tensor.n_rows // n_matrices
    n_rows = min(SAMPLE_ROWS, a_matrix)
    places = np.linspace(0, tensor.n_rows - n_rows, SAMPLES).astype(int)
    decode = decoder()
    for first in dict.fromkeys(places.tolist()):
        matrix = min(first // a_matrix, n_matrices - 1)
        start = min(first, (matrix + 1) * a_matrix - n_rows)
        rows = slice(start, start + n_rows)
        columns = importance if importance is None or importance.ndim == 1 else importance[matrix]
        yield rows, decode(source.read(tensor, rows)), columns


def _energy(rows: Floats, columns: Floats | None) -> float:
    squares = np.square(rows, dtype=np.float64)
    return float(squares.sum() if columns is None else (squares @ columns.astype(np.float64)).sum())
