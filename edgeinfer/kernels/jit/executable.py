"""Hold one compiled program: its values, its pages, its threads, and the closures of its ops."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import CancelledError, ModelClosedError, ResourceError
from edgeinfer.kernels.backend import Batch, Cancel, Limits, PageBytes, check_batch, check_page
from edgeinfer.kernels.cpus import default_threads
from edgeinfer.kernels.jit import attention, lower, matmul
from edgeinfer.kernels.jit.compiler import make_ready
from edgeinfer.kernels.jit.lower_linear import largest_codes
from edgeinfer.kernels.jit.memory import KV_NUMBERS, Acts, address, floats, make_pages, place
from edgeinfer.kernels.jit.pool import Pool
from edgeinfer.kernels.jit.source import Source
from edgeinfer.kernels.jit.step import Step
from edgeinfer.kernels.snapshots import check_snapshot
from edgeinfer.program import ops
from edgeinfer.program.program import Program
from edgeinfer.program.values import Rows
from edgeinfer.quant.tensor import Tensor

MOST_THREADS = 64
FEW = 8  # tokens of a step that n_threads is for; more are for n_threads_batch
MATMULS = (ops.Linear, ops.ExpertLinear)


class JitExecutable:
    """A program over mapped weights. One step at a time: callers take turns by themselves."""

    def __init__(self, program: Program, tensors: Mapping[str, Tensor], limits: Limits) -> None:
        make_ready(lower.kernels_of(program, tensors))
        self.n_vocab, self.n_out = program.n_vocab, program.n_out
        self.n_hidden = program.n_hidden
        self._whole_sequences = program.takes_whole_sequences
        self.n_threads = min(limits.n_threads or default_threads(), MOST_THREADS)
        self.weights_bytes = sum(tensors[name].n_bytes for name in program.weights())
        self._limits = limits
        self.n_threads_batch = min(limits.n_threads_batch or self.n_threads, MOST_THREADS)
        self._pool = Pool(max(self.n_threads, self.n_threads_batch))
        self._flag = np.zeros(1, np.int32)
        try:
            self._build(program, tensors)
        except MemoryError as error:
            self._pool.close()
            raise ResourceError(
                f"jit backend: no memory for {limits.n_pages} KV pages and steps of "
                f"{limits.n_batch} tokens: ask for a smaller context"
            ) from error
        except BaseException:
            self._pool.close()
            raise

    def _build(self, program: Program, tensors: Mapping[str, Tensor]) -> None:
        planned = lower.plan(program)
        most = largest_codes(program, tensors, self._limits.activations)
        logits = program.result
        walks = [lower.reads_and_writes(together) for together in planned]
        values = place(walks, program.outputs.values(), self._limits.n_batch)
        places = program.kv_places
        own = {
            kv.id: make_pages(kv, self._limits.n_pages, self._limits.kv_type)
            for kv in program.kvs
            if places[kv.id] == kv.id
        }
        widest = max((n for _, n in most), default=1)
        longest = max((op.x.width for op in program.ops if isinstance(op, MATMULS)), default=1)
        source = Source(
            program=program,
            tensors=tensors,
            values=values,
            pages={id: own[place] for id, place in places.items()},
            acts=Acts(self._limits.n_batch * longest),
            scratch=floats(self._pool.n_threads, _scratch_floats(program, widest)),
            pool=self._pool,
            most=most,
        )
        self._runs = [
            (together[0].writes()[0].rows if together[0].writes() else Rows.TOKENS, run)
            for together, run in ((each, lower.lower(each, source)) for each in planned)
        ]
        self._source: Source | None = source
        self._logits = values[logits.id]
        hidden = program.outputs.get("hidden")
        self._hidden = self._logits[:0] if hidden is None else values[hidden.id]
        makers = (hidden in written for _, written in walks)
        self._n_body = len(walks) if hidden is None else 1 + list(makers).index(True)
        self._n_wanted = 0
        self._pages = list(own.values())
        self.state_bytes = sum(pages.n_bytes for pages in self._pages)
        self.page_bytes = self.state_bytes // self._limits.n_pages
        self.snapshot_bytes = 0
        self.page_layout = "jit-1"

    def run(self, batch: Batch, *, cancel: Cancel | None = None) -> npt.NDArray[np.float32]:
        """Run one step; the rows returned, (R, n_out), are overwritten by the next run."""
        if self._source is None:
            raise ModelClosedError("jit executable: used after close()")
        check_batch(batch, self._limits, self.n_vocab, whole_sequences=self._whole_sequences)
        flag = self._flag if cancel is None else cancel.cell
        is_few = len(batch.tokens) <= FEW
        self._pool.begin(self.n_threads if is_few else self.n_threads_batch, address(flag))
        step = Step(batch)
        for rows, run in self._runs[: self._n_body if batch.hidden_only else None]:
            if flag[0]:
                break
            if step.n_rows[rows]:
                run(step)
        if flag[0]:
            raise CancelledError("the step was cancelled")
        self._n_wanted = len(batch.wanted)
        return self._logits[: 0 if batch.hidden_only else self._n_wanted]

    def hidden(self) -> npt.NDArray[np.float32]:
        """Return the hidden rows of the last step; see `Executable`."""
        if self._source is None:
            raise ModelClosedError("jit executable: used after close()")
        return self._hidden[: self._n_wanted]

    def copy_page(self, source: int, target: int) -> None:
        """Make page `target` hold the keys and values that page `source` holds, in every layer."""
        if self._source is None:
            raise ModelClosedError("jit executable: used after close()")
        for pages in self._pages:
            pages.keys[target] = pages.keys[source]
            pages.values[target] = pages.values[source]

    def read_page(self, page: int, n_positions: int) -> PageBytes:
        """Return the first positions of a page, and zeros behind them; see `Executable`."""
        if self._source is None:
            raise ModelClosedError("jit executable: used after close()")
        check_page(page, self._limits, n_positions=n_positions)
        parts = []
        for pages in self._pages:
            keys, values = pages.keys[page].copy(), pages.values[page].copy()
            keys[:, :, n_positions:] = 0
            values[:, n_positions:] = 0
            parts += [keys.view(np.uint8).ravel(), values.view(np.uint8).ravel()]
        return np.concatenate(parts)

    def write_page(self, page: int, data: PageBytes) -> None:
        """Make a page hold `data`; see `Executable`."""
        if self._source is None:
            raise ModelClosedError("jit executable: used after close()")
        check_page(page, self._limits, data=data, page_bytes=self.page_bytes)
        numbers = np.frombuffer(data.tobytes(), KV_NUMBERS[self._limits.kv_type])
        at = 0
        for pages in self._pages:
            for rows in (pages.keys[page], pages.values[page]):
                rows[...] = numbers[at : at + rows.size].reshape(rows.shape)
                at += rows.size

    def read_snapshot(self, snapshot: int) -> PageBytes:
        """Refuse: no program with recurrent state compiles here."""
        check_snapshot(snapshot, self._limits, 0)
        raise AssertionError

    def write_snapshot(self, snapshot: int, data: PageBytes) -> None:
        """Refuse, as `read_snapshot`."""
        check_snapshot(snapshot, self._limits, 0)

    def close(self) -> None:
        """Free the pages, the threads and the hold on the file."""
        if self._source is not None:
            self._pool.close()
            self._runs, self._pages, self._source = [], [], None
            del self._logits, self._hidden

    def __del__(self) -> None:
        if getattr(self, "_source", None) is not None:
            self.close()


def _scratch_floats(program: Program, widest: int) -> int:
    """Return the floats of scratch that one thread needs, in whole cache lines."""
    needs = [matmul.scratch_bytes(widest)]
    for op in program.attentions():
        kv = program.kv(op.kv)
        group = op.heads // kv.n_kv_heads
        needs.append(attention.scratch_bytes(kv.key_dim, kv.value_dim, group))
    return -(-max(needs) // 64) * 16
