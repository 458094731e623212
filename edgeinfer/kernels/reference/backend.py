"""Run programs in NumPy, float32: what every other backend is compared with.

Slow on purpose, plain on purpose: weights are decoded whole, matrices go through BLAS, keys and
values stay float32. Needs four bytes a weight.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import CancelledError, ModelClosedError
from edgeinfer.kernels.backend import (
    Backend,
    Batch,
    Cancel,
    Footprint,
    Limits,
    PageBytes,
    Progress,
    check_batch,
    check_limits,
    check_page,
)
from edgeinfer.kernels.reference.compile import compile_op
from edgeinfer.kernels.reference.recurrence import make_snapshots
from edgeinfer.kernels.reference.source import Source
from edgeinfer.kernels.reference.step import Kernel, KvPages, make_pages, start_step
from edgeinfer.kernels.reference.weights import Weights
from edgeinfer.kernels.snapshots import check_snapshot, check_snapshots
from edgeinfer.program.program import Program
from edgeinfer.program.values import Rows
from edgeinfer.quant.imatrix import Sums
from edgeinfer.quant.packed import MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor


class ReferenceExecutable:
    """A program over decoded weights."""

    n_threads = n_threads_batch = 1

    def __init__(
        self,
        program: Program,
        limits: Limits,
        weights: Weights,
        pages: Mapping[int, KvPages],
        observed: Mapping[str, Sums],
    ) -> None:
        self.n_vocab, self.n_out = program.n_vocab, program.n_out
        self.n_hidden = program.n_hidden
        self.state_bytes = sum(kv.n_bytes for kv in pages.values())
        self.page_bytes = self.state_bytes // limits.n_pages
        self.snapshot_bytes = program.snapshot_bytes
        self.page_layout = "reference-1"
        self._snapshots = {
            (type(state), state.id): make_snapshots(state, limits.n_snapshots)
            for state in program.recurrent
        }
        source = Source(program, weights, pages, self._snapshots, observed)
        self._kernels: list[Kernel] = [compile_op(op, source) for op in program.ops]
        self._dying = _last_uses(program)
        self._for_wanted = [any(v.rows is Rows.WANTED for v in op.writes()) for op in program.ops]
        self._result_id = program.result.id
        self._n_body = _n_body(program)
        self._hidden_id = program.outputs["hidden"].id if program.n_hidden else -1
        self._no_hidden = np.zeros((0, program.n_hidden), np.float32)
        self._hidden = self._no_hidden
        self._limits = limits
        self._whole_sequences = program.takes_whole_sequences
        self._weights = weights
        self._pages = pages
        self.weights_bytes = weights.decoded_bytes
        self._closed = False

    def run(self, batch: Batch, *, cancel: Cancel | None = None) -> npt.NDArray[np.float32]:
        """Run one step; see `Executable.run`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        check_batch(batch, self._limits, self.n_vocab, whole_sequences=self._whole_sequences)
        if self.snapshot_bytes:
            check_snapshots(batch, self._limits)
        step = start_step(batch)
        ops = list(zip(self._kernels, self._dying, self._for_wanted, strict=True))
        for kernel, dying, for_wanted in ops[: self._n_body if batch.hidden_only else None]:
            if for_wanted and not len(batch.wanted):
                continue
            if cancel is not None and cancel.is_set:
                raise CancelledError("the step was cancelled")
            kernel(step)
            for id in dying:
                del step.values[id]
        self._hidden = step.values.get(self._hidden_id, self._no_hidden)
        return step.values.get(self._result_id, np.zeros((0, self.n_out), np.float32))

    def hidden(self) -> npt.NDArray[np.float32]:
        """Return the hidden rows of the last step; see `Executable`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        return self._hidden

    def copy_page(self, source: int, target: int) -> None:
        """Make page `target` hold the keys and values that page `source` holds, in every layer."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        for pages in self._pages.values():
            pages.copy(source, target)

    def read_page(self, page: int, n_positions: int) -> PageBytes:
        """Return the first positions of a page, and zeros behind them; see `Executable`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        check_page(page, self._limits, n_positions=n_positions)
        parts = []
        for pages in self._pages.values():
            for rows in pages.own_rows(page):
                kept = rows.copy()
                kept[n_positions:] = 0
                parts.append(kept.view(np.uint8).ravel())
        return np.concatenate(parts)

    def write_page(self, page: int, data: PageBytes) -> None:
        """Make a page hold `data`; see `Executable`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        check_page(page, self._limits, data=data, page_bytes=self.page_bytes)
        floats, at = np.frombuffer(data.tobytes(), np.float32), 0
        for pages in self._pages.values():
            for rows in pages.own_rows(page):
                rows[...] = floats[at : at + rows.size].reshape(rows.shape)
                at += rows.size

    def read_snapshot(self, snapshot: int) -> PageBytes:
        """Return a recurrent state as bytes; see `Executable`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        check_snapshot(snapshot, self._limits, self.snapshot_bytes)
        parts = [kept[snapshot].view(np.uint8).ravel() for kept in self._snapshots.values()]
        return np.concatenate(parts)

    def write_snapshot(self, snapshot: int, data: PageBytes) -> None:
        """Make a snapshot hold `data`; see `Executable`."""
        if self._closed:
            raise ModelClosedError("the model was closed")
        check_snapshot(snapshot, self._limits, self.snapshot_bytes, data=data)
        floats, at = np.frombuffer(data.tobytes(), np.float32), 0
        for kept in self._snapshots.values():
            state = kept[snapshot]
            state[...] = floats[at : at + state.size].reshape(state.shape)
            at += state.size

    def close(self) -> None:
        """Free weights and state."""
        self._closed = True
        self._kernels, self._pages, self._snapshots = [], {}, {}
        self._weights.close()


def _n_body(program: Program) -> int:
    """Return how many ops lead to the hidden rows; all, where the program names none."""
    hidden = program.outputs.get("hidden")
    makers = (hidden in op.writes() for op in program.ops)
    return len(program.ops) if hidden is None else 1 + list(makers).index(True)


def _last_uses(program: Program) -> list[tuple[int, ...]]:
    kept = {value.id for value in program.outputs.values()}
    dying: list[tuple[int, ...]] = []
    for op in reversed(program.ops):
        ids = {value.id for value in (*op.reads(), *op.writes())} - kept
        dying.append(tuple(sorted(ids)))
        kept |= ids
    return dying[::-1]


class ReferenceBackend:
    """Compile programs to closures over NumPy arrays."""

    name = "reference"
    is_bit_exact = False

    def why_unavailable(self) -> str | None:
        """Return None: it runs wherever NumPy does."""
        return None

    def compile(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        limits: Limits,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        packed: Mapping[str, PackedMatrix] | None = None,
        observe: Mapping[str, Sums] | None = None,
    ) -> ReferenceExecutable:
        """Make the program runnable; weights are decoded at their first use."""
        program.validate(tensors)
        check_limits(program, limits)
        n_bytes = sum(tensors[name].n_bytes for name in program.weights())
        weights = Weights(tensors, n_bytes, progress)
        pages = {kv.id: make_pages(kv, limits.n_pages) for kv in program.kvs}
        return ReferenceExecutable(program, limits, weights, pages, observe or {})

    def measure(self, program: Program, tensors: Mapping[str, Tensor], limits: Limits) -> Footprint:
        """Count decoded weights, float32 pages, and values as if all lived to the end."""
        check_limits(program, limits)
        pages = [make_pages(kv, 1) for kv in program.kvs]
        widths = [value.width for op in program.ops for value in op.writes()]
        return Footprint(
            weights_bytes=sum(4 * ref.size for ref in program.weights().values()),
            weights_are_mapped=False,
            table_bytes=0,
            page_bytes=sum(page.n_bytes for page in pages),
            work_bytes=4 * limits.n_batch * sum(widths),
        )

    def layout(self, formats: Iterable[str]) -> str | None:
        """Return None: decoded weights are not worth keeping."""
        return None

    def matrices(self, program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
        """Return nothing; see `layout`."""
        return []


BACKEND: Backend = ReferenceBackend()
