"""Stream tensors into other formats: a few rows at a time are decoded, checked and encoded.

Rows are encoded alone, so pieces of rows go to threads as they come and the bytes do not depend
on how many there are. Memory is that of the pieces in flight. Knows no recipe and no file written.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import (
    InvalidParameterError,
    ModelFormatError,
    NonFiniteError,
    UnsupportedModelError,
)
from edgeinfer.loader.cursor import quote
from edgeinfer.quant.formats import Format
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.decoding import Decode, decoder

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Importance = Mapping[str, Floats]

PIECE_VALUES = 1 << 20  # 4 MB of float32: more gains nothing, less shows the cost of a call
KEPT_BYTES = 4 << 20  # the same of a tensor that is copied
AHEAD = 2  # pieces in flight a thread
# Of floats that are copied, the bits that are all set in NaN and infinity.
_EXPONENT = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_MAY_BE_INFINITE = re.compile(r"(^|\.)rope_f(reqs|actors_\w+)\.weight$")  # turns nothing then


class Source(Protocol):
    """Where rows come from; safe to use from several threads."""

    def read(self, tensor: Tensor, rows: slice) -> Tensor:
        """Return some rows, from `rows.start` to `rows.stop`, as a tensor of their own."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a tensor that become another format."""

    tensor: Tensor
    format: Format
    rows: slice
    importance: Floats | None = None


Encode = Callable[[Piece, Floats], Bytes]


def pieces_of(tensor: Tensor, format: Format, importance: Floats | None) -> Iterator[Piece]:
    """Cut a tensor into pieces, none across two experts.

    `importance` is (n_columns,) or, one row an expert, (n_experts, n_columns).
    """
    of_experts = importance is not None and importance.ndim == 2
    n_matrices = len(importance) if importance is not None and of_experts else 1
    n_rows = tensor.n_rows // n_matrices
    step = max(1, PIECE_VALUES // tensor.n_columns)
    if format is tensor.format:
        step = max(1, KEPT_BYTES // tensor.row_bytes)
    for i in range(n_matrices):
        weights = importance[i] if importance is not None and of_experts else importance
        for first in range(i * n_rows, (i + 1) * n_rows, step):
            rows = slice(first, min(first + step, (i + 1) * n_rows))
            yield Piece(tensor, format, rows, weights)


def converted(
    source: Source, pieces: Iterable[Piece], encode: Encode, *, n_threads: int
) -> Generator[tuple[Piece, Bytes], None, None]:
    """Yield each piece with its bytes in the new format, in order.

    The next ones are on their way while the caller writes. Raises ModelFormatError if a weight is
    NaN or infinite, UnsupportedModelError if one is too large for the format, ResourceError if the
    source cannot be read or changes.
    """
    stop = threading.Event()
    decode = decoder()

    def run(piece: Piece) -> Bytes:
        return np.empty(0, np.uint8) if stop.is_set() else convert(source, piece, decode, encode)

    left = iter(pieces)
    waiting: deque[tuple[Piece, Future[Bytes]]] = deque()
    with ThreadPoolExecutor(n_threads, "edgeinfer-quantize") as pool:
        try:
            while True:
                for piece in left:
                    waiting.append((piece, pool.submit(run, piece)))
                    if len(waiting) >= AHEAD * n_threads:
                        break
                if not waiting:
                    return
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            stop.set()


def convert(source: Source, piece: Piece, decode: Decode, encode: Encode) -> Bytes:
    """Return the bytes of a piece in its new format."""
    stored = source.read(piece.tensor, piece.rows)
    if piece.format is piece.tensor.format:
        _check_copied(piece, stored)
        return stored.data
    values = decode(stored)
    try:
        return encode(piece, values)
    except NonFiniteError:
        raise _damaged(piece, ~np.isfinite(values)) from None
    except InvalidParameterError:
        largest = max(float(values.max()), -float(values.min()))
        name = piece.tensor.name
        raise UnsupportedModelError(
            f"tensor {quote(name)}: found {largest:g}, more than {piece.format.name} can hold; "
            f"make it BF16 or F32 (--tensor-type '^{re.escape(name)}$=BF16')"
        ) from None


def _check_copied(piece: Piece, stored: Tensor) -> None:
    """Raise ModelFormatError if floats that stay as they are hold NaN or infinity."""
    if stored.format.name not in _EXPONENT or _MAY_BE_INFINITE.search(stored.name):
        return
    word, exponent = _EXPONENT[stored.format.name]
    bad = (stored.data.view(word) & exponent) == exponent
    if bad.any():
        raise _damaged(piece, bad.reshape(-1, stored.n_columns))


def _damaged(piece: Piece, bad: npt.NDArray[np.bool_]) -> ModelFormatError:
    """Return the error for the first row, of (n_rows, n_columns), with anything bad in it."""
    row = int(np.flatnonzero(bad.any(axis=1))[0]) + piece.rows.start
    return ModelFormatError(
        f"tensor {quote(piece.tensor.name)}: row {row}: found NaN or infinity (need finite "
        "weights); the file is damaged"
    )
