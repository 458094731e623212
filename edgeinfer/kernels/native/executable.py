"""Run steps on a finished C executor, and hand its KV pages in and out; knows no op."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import (
    BackendError,
    CancelledError,
    InvalidParameterError,
    ModelClosedError,
    ResourceError,
)
from edgeinfer.kernels.backend import Batch, Cancel, Limits, PageBytes, check_batch, check_page
from edgeinfer.kernels.native.guard import Guard
from edgeinfer.kernels.snapshots import check_snapshot, check_snapshots

ALIGNMENT = 64  # of a page's bytes in C
ARRAYS = ("tokens", "positions", "sequences", "page_tables", "wanted")  # of a batch
STATE_ARRAYS = ("snapshots", "saved_rows", "saved_snapshots")  # where there is recurrent state


class NativeExecutable:
    """A program on the C executor. One step at a time: callers take turns by themselves."""

    def __init__(
        self,
        ffi: Any,
        lib: Any,
        executor: Any,
        keep: list[object],
        guard: Guard,
        limits: Limits,
        n_vocab: int,
        n_out: int,
        n_hidden: int,
        *,
        whole_sequences: bool,
    ) -> None:
        """Own the executor, and `keep`, the memory it points into, which `guard` watches."""
        self._ffi, self._lib = ffi, lib
        self._keep, self._guard = keep, guard
        self._limits = limits
        self._whole_sequences = whole_sequences
        self._batch = ffi.new("ei_batch *")
        self.n_vocab, self.n_out, self.n_hidden = n_vocab, n_out, n_hidden
        self.n_threads = int(lib.ei_exec_threads(executor))
        self.n_threads_batch = int(lib.ei_exec_threads_batch(executor))
        self.weights_bytes = int(lib.ei_exec_weight_bytes(executor))
        self.state_bytes = int(lib.ei_exec_state_bytes(executor))
        self.work_bytes = int(lib.ei_exec_work_bytes(executor))
        self.page_bytes = self.state_bytes // limits.n_pages
        self.snapshot_bytes = int(lib.ei_exec_snapshot_bytes(executor))
        self._arrays = ARRAYS + (STATE_ARRAYS if self.snapshot_bytes else ())
        self.page_layout = "native-1"  # beside the KV type
        # what run() gave out may outlive the executable, so this memory goes with its last view
        work = ffi.gc(lib.ei_exec_take_work(executor), partial(_free, lib, self.work_bytes))
        self._logits = self._rows(work, lib.ei_exec_logits(executor), n_out)
        self._hidden = self._rows(work, lib.ei_exec_hidden(executor), n_hidden)
        self._n_wanted = 0
        self._exec = executor  # owned from here on: nothing above may have failed

    def _rows(self, work: Any, first: Any, width: int) -> npt.NDArray[np.float32]:
        n_rows = self._limits.n_batch
        start = self._ffi.cast("uint8_t *", first) - work if width else 0
        values = np.frombuffer(self._ffi.buffer(work, self.work_bytes), np.float32)
        return values[start // 4 : start // 4 + n_rows * width].reshape(n_rows, width)

    def run(self, batch: Batch, *, cancel: Cancel | None = None) -> npt.NDArray[np.float32]:
        """Run one step; the rows returned, (R, n_out), are overwritten by the next run."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        check_batch(batch, self._limits, self.n_vocab, whole_sequences=self._whole_sequences)
        if self.snapshot_bytes:
            check_snapshots(batch, self._limits)
        ffi, c = self._ffi, self._batch
        arrays = {
            name: ffi.from_buffer("int32_t[]", np.ascontiguousarray(getattr(batch, name)))
            for name in self._arrays
        }
        for name, pointer in arrays.items():
            setattr(c, name, pointer)
        c.n_tokens, c.n_wanted = len(batch.tokens), len(batch.wanted)
        c.hidden_only = batch.hidden_only
        c.n_saves = len(batch.saved_rows) if self.snapshot_bytes else 0
        c.n_sequences, c.pages_per_sequence = batch.page_tables.shape
        flag = ffi.from_buffer("int32_t[]", cancel.cell) if cancel is not None else ffi.NULL
        self._guard.check()
        status = self._lib.ei_exec_run(self._exec, c, flag)
        self._guard.check()
        if status != self._lib.EI_OK:
            raise self._failed(status)
        self._n_wanted = len(batch.wanted)
        return self._logits[: 0 if batch.hidden_only else self._n_wanted]

    def hidden(self) -> npt.NDArray[np.float32]:
        """Return the hidden rows of the last step; see `Executable`."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        return self._hidden[: self._n_wanted]

    def copy_page(self, source: int, target: int) -> None:
        """Make page `target` hold the keys and values that page `source` holds, in every layer."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        if self._lib.ei_exec_copy_page(self._exec, source, target) != self._lib.EI_OK:
            raise InvalidParameterError(
                f"native executable: copy_page: found {source} to {target} "
                f"(need pages 0 to {self._limits.n_pages - 1})"
            )

    def read_page(self, page: int, n_positions: int) -> PageBytes:
        """Return the first positions of a page, and zeros behind them; see `Executable`."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        check_page(page, self._limits, n_positions=n_positions)
        data = self._aligned()
        source = self._ffi.from_buffer("uint8_t[]", data)
        status = self._lib.ei_exec_read_page(self._exec, page, n_positions, source)
        if status != self._lib.EI_OK:
            raise ResourceError("native executable: no memory to read a KV page")
        return data

    def write_page(self, page: int, data: PageBytes) -> None:
        """Make a page hold `data`; see `Executable`."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        check_page(page, self._limits, data=data, page_bytes=self.page_bytes)
        source = self._ffi.from_buffer("uint8_t[]", np.ascontiguousarray(data))
        self._lib.ei_exec_write_page(self._exec, page, source)

    def _aligned(self) -> PageBytes:
        memory = np.empty(self.page_bytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + self.page_bytes]

    def _failed(self, status: int) -> Exception:
        lib = self._lib
        errors: dict[int, Exception] = {
            lib.EI_CANCELLED: CancelledError("the step was cancelled"),
            lib.EI_FORKED: BackendError(
                "the process was forked after the model was loaded: its threads are gone; "
                "load the model again in the child"
            ),
            lib.EI_NO_MEMORY: ResourceError("no memory for this step's attention"),
        }
        return errors.get(status, BackendError(f"native executable: step failed, status {status}"))

    def read_snapshot(self, snapshot: int) -> PageBytes:
        """Return a recurrent state as bytes; see `Executable`."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        check_snapshot(snapshot, self._limits, self.snapshot_bytes)
        data = np.empty(self.snapshot_bytes, np.uint8)
        self._lib.ei_exec_read_snapshot(
            self._exec, snapshot, self._ffi.from_buffer("uint8_t[]", data)
        )
        return data

    def write_snapshot(self, snapshot: int, data: PageBytes) -> None:
        """Make a snapshot hold `data`; see `Executable`."""
        if self._exec is None:
            raise ModelClosedError("native executable: used after close()")
        check_snapshot(snapshot, self._limits, self.snapshot_bytes, data=data)
        source = self._ffi.from_buffer("uint8_t[]", np.ascontiguousarray(data))
        self._lib.ei_exec_write_snapshot(self._exec, snapshot, source)

    def close(self) -> None:
        """Free the weights, the pages and the threads."""
        if self._exec is not None:
            del self._logits, self._hidden
            self._lib.ei_exec_free(self._exec)
            self._exec = None
            self._keep.clear()
            self._guard.close()

    def __del__(self) -> None:
        if getattr(self, "_exec", None) is not None:
            self.close()


def _free(lib: Any, n_bytes: int, work: Any) -> None:
    lib.ei_work_free(work, n_bytes)
