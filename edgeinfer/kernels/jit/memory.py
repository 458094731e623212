"""Hold what steps work on: values shared where lives do not overlap, activations, pages, scratch.

Kernels load whole vectors, so every array has 16 floats of room behind it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.backend import PAGE_LEN
from edgeinfer.program.states import Kv
from edgeinfer.program.values import Value

Floats = npt.NDArray[np.float32]
ROOM = 16
KV_NUMBERS: dict[str, npt.DTypeLike] = {"f32": np.float32, "f16": np.float16}  # by KV type


def floats(*shape: int) -> Floats:
    """Allocate float32 with room behind them; memory is taken as it is first written."""
    n = int(np.prod(shape))
    return np.zeros(n + ROOM, np.float32)[:n].reshape(shape)


def address(array: npt.NDArray[np.generic]) -> int:
    """Return where an array's memory begins."""
    return int(array.ctypes.data)


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Keys `[page, head, dim, 64]` and values `[page, head, 64, dim]` of one KV."""

    keys: npt.NDArray[np.floating]
    values: npt.NDArray[np.floating]

    @property
    def n_bytes(self) -> int:
        """Bytes of both."""
        return self.keys.nbytes + self.values.nbytes


def make_pages(kv: Kv, n_pages: int, kv_type: str) -> Pages:
    """Allocate the pages of a KV; memory is taken as pages are first written."""
    sizes, number = kv.n_kv_heads * PAGE_LEN, KV_NUMBERS[kv_type]
    keys = np.zeros(n_pages * sizes * kv.key_dim + 2 * ROOM, number)[: -2 * ROOM]
    values = np.zeros(n_pages * sizes * kv.value_dim + 2 * ROOM, number)[: -2 * ROOM]
    return Pages(
        keys.reshape(n_pages, kv.n_kv_heads, kv.key_dim, PAGE_LEN),
        values.reshape(n_pages, kv.n_kv_heads, PAGE_LEN, kv.value_dim),
    )


class Acts:
    """Room for the quantized activations of n floats, as csrc/formats.h defines them."""

    def __init__(self, n: int) -> None:
        self.q = np.zeros(n + 2 * ROOM, np.int16)
        self.d, self.sums, self.ds = floats(n // 16), floats(n // 16), floats(n // 32)
        self.addresses = tuple(address(a) for a in (self.q, self.d, self.sums, self.ds))


def place(
    steps: Sequence[tuple[Iterable[Value], Iterable[Value]]], kept: Iterable[Value], n_rows: int
) -> dict[int, Floats]:
    """Give each value its array `(n_rows, width)`, by id; `steps` lists (read, written) in order.

    A result never lies where an operand of the same step does.
    """
    last: dict[int, int] = {}
    for at, (read, written) in enumerate(steps):
        for value in (*read, *written):
            last[value.id] = at
    for value in kept:
        last[value.id] = len(steps)
    placed: dict[int, Floats] = {}
    free: dict[int, list[Floats]] = {}
    for at, (read, written) in enumerate(steps):
        for value in written:
            spare = free.get(value.width)
            placed[value.id] = spare.pop() if spare else floats(n_rows, value.width)
        for value in {v.id: v for v in (*read, *written)}.values():
            if last[value.id] == at:
                free.setdefault(value.width, []).append(placed[value.id])
    return placed
