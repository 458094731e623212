"""Hold one step's values and the sequences' keys and values, as NumPy arrays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.backend import PAGE_LEN, Batch
from edgeinfer.program.states import Kv
from edgeinfer.program.values import Rows

Floats = npt.NDArray[np.float32]
Slots = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class KvPages:
    """The keys and values of one KV: row `page * PAGE_LEN + position % PAGE_LEN`, float32."""

    keys: Floats  # (n_slots, n_kv_heads, key_dim)
    values: Floats  # (n_slots, n_kv_heads, value_dim); a view of keys where they are a prefix

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and values."""
        own = 0 if self.values.base is self.keys else self.values.nbytes
        return self.keys.nbytes + own

    def own_rows(self, page: int) -> list[Floats]:
        """Return the rows of a page, where values are no view of keys of both."""
        kept = [self.keys] if self.values.base is self.keys else [self.keys, self.values]
        return [rows[page * PAGE_LEN : (page + 1) * PAGE_LEN] for rows in kept]

    def copy(self, source: int, target: int) -> None:
        """Make page `target` hold what page `source` holds."""
        for rows in (self.keys, self.values):
            at = source * PAGE_LEN
            rows[target * PAGE_LEN : (target + 1) * PAGE_LEN] = rows[at : at + PAGE_LEN]


def make_pages(kv: Kv, n_pages: int) -> KvPages:
    """Allocate the pages of a KV; memory is taken as pages are first written."""
    n_slots = n_pages * PAGE_LEN
    keys = np.zeros((n_slots, kv.n_kv_heads, kv.key_dim), np.float32)
    if kv.v_is_prefix:
        return KvPages(keys, keys[:, :, : kv.value_dim])
    return KvPages(keys, np.zeros((n_slots, kv.n_kv_heads, kv.value_dim), np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The tokens of one sequence in a step: rows `start` to `end`, and where its past lies.

    `snapshot`: its recurrent state before them. `saves`: after which of its rows that goes where.
    """

    start: int
    end: int
    first_pos: int  # position of row `start`
    slots: Slots  # (first_pos + end - start,), slot of each position from 0 on
    snapshot: int = -1
    saves: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Step:
    """What the ops of one step share; `values` holds each value from its making to its last use."""

    batch: Batch
    runs: tuple[Run, ...]
    slots: Slots  # (T,), where each token's keys and values go
    values: dict[int, npt.NDArray[Any]] = field(default_factory=dict)
    angles: dict[tuple[int, float, Rows], tuple[Floats, Floats]] = field(default_factory=dict)

    def tokens_of(self, rows: Rows) -> slice | npt.NDArray[np.int32]:
        """Return which tokens the rows of a value are: all, or the wanted."""
        return slice(None) if rows is Rows.TOKENS else self.batch.wanted


Kernel: TypeAlias = Callable[[Step], None]


def start_step(batch: Batch) -> Step:
    """Find the runs of a checked batch and the slots of their positions."""
    runs = tuple(_runs(batch))
    slots = np.concatenate([run.slots[run.first_pos :] for run in runs])
    return Step(batch, runs, slots)


def _runs(batch: Batch) -> Iterator[Run]:
    starts = np.flatnonzero(np.diff(batch.sequences, prepend=np.int32(-1)))
    ends = np.append(starts[1:], len(batch.tokens))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        first_pos = int(batch.positions[start])
        positions = np.arange(first_pos + end - start)
        table = batch.page_tables[batch.sequences[start]].astype(np.int64)
        slots = table[positions // PAGE_LEN] * PAGE_LEN + positions % PAGE_LEN
        snapshot = int(batch.snapshots[batch.sequences[start]]) if len(batch.snapshots) else -1
        yield Run(start, end, first_pos, slots, snapshot, _saves(batch, start, end))


def _saves(batch: Batch, start: int, end: int) -> tuple[tuple[int, int], ...]:
    pairs = zip(batch.saved_rows.tolist(), batch.saved_snapshots.tolist(), strict=True)
    return tuple((row - start, snapshot) for row, snapshot in pairs if start <= row < end)
