"""Say what one step is about: how many rows, where its tokens lie, how far heads are turned."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.backend import PAGE_LEN, Batch
from edgeinfer.kernels.jit.attention import SPAN_NUMBERS
from edgeinfer.kernels.jit.memory import Floats, address, floats
from edgeinfer.program.values import Rows

# pi/2 in three parts, as csrc/rope.c has it: float64 steps, each rounded once.
_HALF_PI = tuple(
    float.fromhex(x) for x in ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69")
)
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_ROUNDING = float.fromhex("0x1.8p+52")
_SINE = (1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6)
_COSINE = (1 / 479001600, -1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -0.5)


class Step:
    """One checked batch, and what ops derive from it, each once.

    Attributes:
        batch: the tokens.
        runs: the first row and the one behind the last of each sequence, as they stand.
        n_rows: rows of a value, by what its rows are.
        at_slots: address of the page, and the place in it, where each token's keys and values go.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        starts = np.flatnonzero(np.diff(batch.sequences, prepend=np.int32(-1))).tolist()
        self.runs = list(zip(starts, [*starts[1:], len(batch.tokens)], strict=True))
        self.n_rows = {
            Rows.TOKENS: len(batch.tokens),
            Rows.WANTED: len(batch.wanted),
            Rows.SEQUENCES: len(self.runs),
        }
        pages = batch.page_tables[batch.sequences, batch.positions // PAGE_LEN]
        self._slots = np.stack([pages, batch.positions % PAGE_LEN], axis=1)
        self.at_slots = address(self._slots)
        self._tables = np.ascontiguousarray(batch.page_tables)
        self._spans: dict[tuple[int, Rows], npt.NDArray[np.int64]] = {}
        self._turns: dict[tuple[int, float, Rows], tuple[int, int]] = {}
        self._kept: list[Floats] = []

    def spans(self, most: int, rows: Rows) -> npt.NDArray[np.int64]:
        """Cut rows into spans of neighbours in one sequence, at most `most`, for attention."""
        if (most, rows) not in self._spans:
            sequences, positions = self.batch.sequences, self.batch.positions
            tokens = self._tokens_of(rows)
            cuts = [
                (first, min(most, end - first), last)
                for start, end, last in self._stretches(tokens)
                for first in range(start, end, most)
            ]
            spans = np.zeros((len(cuts), SPAN_NUMBERS), np.int64)
            if cuts:
                spans[:, (0, 1, 4)] = cuts
            first = tokens[spans[:, 0]]
            row_bytes = self._tables.strides[0]
            spans[:, 2] = address(self._tables) + sequences[first].astype(np.int64) * row_bytes
            spans[:, 3], spans[:, 4] = positions[first], positions[spans[:, 4]]
            self._spans[most, rows] = spans
        return self._spans[most, rows]

    def _tokens_of(self, rows: Rows) -> npt.NDArray[np.int32]:
        if rows is Rows.WANTED:
            return self.batch.wanted
        return np.arange(len(self.batch.tokens), dtype=np.int32)

    def _stretches(self, tokens: npt.NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
        """Yield rows, from and to, of neighbouring tokens, and the last token of their sequence."""
        for start, end in self.runs:
            first, last = np.searchsorted(tokens, (start, end)).tolist()
            gaps = first + 1 + np.flatnonzero(np.diff(tokens[first:last]) > 1)
            bounds = [first, *gaps.tolist(), last]
            yield from ((a, b, end - 1) for a, b in pairwise(bounds))

    def turns(self, constant: int, inv_freq: Floats, mscale: float, rows: Rows) -> tuple[int, int]:
        """Return the addresses of the cosines and sines `(rows, pairs)` of one table."""
        key = (constant, mscale, rows)
        if key not in self._turns:
            positions = self.batch.positions[self._tokens_of(rows)]
            cosines, sines = _turns(positions, inv_freq, mscale)
            self._kept += [cosines, sines]
            self._turns[key] = (address(cosines), address(sines))
        return self._turns[key]


def _turns(
    positions: npt.NDArray[np.int32], inv_freq: Floats, mscale: float
) -> tuple[Floats, Floats]:
    angle = positions[:, None].astype(np.float64) * inv_freq.astype(np.float64)
    rounded = angle * _TWO_OVER_PI + _ROUNDING
    quarter, k = rounded.view(np.int64), rounded - _ROUNDING
    r = angle
    for part in _HALF_PI:
        r = r - k * part
    w = r * r
    s, c = _polynomial(_SINE, w), _polynomial(_COSINE, w)
    s, c = r + r * (w * s), 1.0 + w * c
    odd = (quarter & 1) == 1
    turned_s, turned_c = np.where(odd, c, s), np.where(odd, s, c)
    factor = float(np.float32(mscale))
    sines, cosines = floats(*angle.shape), floats(*angle.shape)
    sines[:] = np.where(quarter & 2, -turned_s, turned_s) * factor
    cosines[:] = np.where((quarter + 1) & 2, -turned_c, turned_c) * factor
    return cosines, sines


def _polynomial(
    coefficients: tuple[float, ...], w: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    total = np.full_like(w, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * w + coefficient
    return total
