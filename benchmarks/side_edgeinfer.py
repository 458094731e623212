"""Measure edgeinfer for `benchmarks.models`: a job as JSON on stdin, rates as JSON on stdout.

Beside the rates it gives the machine's roofs, measured before and after them (the better one
counts), and how much of a roof one token of each row needs.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import N_BATCH, Row, answer, measure, read_job
from edgeinfer import __version__
from edgeinfer.arch import build_program
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Limits
from edgeinfer.kernels.native import isa, machine
from edgeinfer.kernels.native.backend import BACKEND, NativeExecutable
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.program.program import Program
from edgeinfer.program.work import kv_bytes, macs_per_token, weight_bytes


class Ours:
    """An executable and the pages of its sequences; what is written again replaces what was."""

    def __init__(self, executable: NativeExecutable, n_sequences: int, n_ctx: int) -> None:
        self.n_vocab = executable.n_vocab
        self._executable = executable
        pages = np.arange(n_sequences * pages_of(n_ctx), dtype=np.int32)
        self._page_tables = pages.reshape(n_sequences, -1)

    def fill(self, depth: int, tokens: list[int]) -> None:
        """Compute one step's tokens; the pages behind them are copies, which cost the same."""
        if depth == 0:
            return
        n_computed = min(depth, N_BATCH)
        self.step([tokens[:n_computed]], 0)
        for page in range(pages_of(n_computed), pages_of(depth)):
            self._executable.copy_page(page % (N_BATCH // PAGE_LEN), page)

    def step(self, tokens: list[list[int]], position: int) -> None:
        n_sequences, n_tokens = len(tokens), len(tokens[0])
        self._executable.run(
            Batch(
                tokens=np.array(tokens, np.int32).ravel(),
                positions=np.tile(np.arange(n_tokens, dtype=np.int32) + position, n_sequences),
                sequences=np.repeat(np.arange(n_sequences, dtype=np.int32), n_tokens),
                page_tables=self._page_tables,
                wanted=np.arange(n_tokens - 1, n_tokens * n_sequences, n_tokens, dtype=np.int32),
            )
        )

    def restore(self) -> None:
        pass


def pages_of(n_ctx: int) -> int:
    """Return how many pages hold that many positions."""
    return -(-n_ctx // PAGE_LEN)


def roofs(level: str, n_threads: int) -> dict[str, float]:
    """Measure the machine: bytes read and bytes multiplied a second."""
    return {
        "memory": machine.read_bandwidth(n_threads),
        "int8": machine.int8_peak(level, n_threads),
    }


def needed(program: Program, file: GgufFile, row: Row) -> dict[str, Any]:
    """Return which roof bounds a row, and how much of it one token needs."""
    if row.kind == "pp":
        return {"bound_by": "int8", "per_token": macs_per_token(program)}
    n_bytes = weight_bytes(program, file.tensors, n_tokens=row.n_sequences) / row.n_sequences
    n_bytes += kv_bytes(program, row.depth + row.n_tokens // 2)
    return {"bound_by": "memory", "per_token": n_bytes}


def main() -> None:
    """Measure once."""
    job, rows = read_job()
    n_ctx = max(row.n_ctx for row in rows)
    n_pages = max(row.n_sequences * pages_of(row.n_ctx) for row in rows)
    n_threads, level = job["n_threads"], job["isa"] or isa.chosen()
    limits = Limits(n_ctx=n_ctx, n_pages=n_pages, n_batch=N_BATCH, n_threads=n_threads)
    with open_gguf(Path(job["model"])) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        executable = BACKEND.compile(program, file.tensors, limits, isa_name=level)
        before = roofs(level, n_threads)
        rates = {
            row.name: measure(Ours(executable, row.n_sequences, row.n_ctx), row, job["repeats"])
            for row in rows
        }
        after = roofs(level, n_threads)
        executable.close()
        work = {row.name: needed(program, file, row) for row in rows}
    best = {name: max(before[name], after[name]) for name in before}
    answer(rates=rates, roofs=best, needed=work, version=f"edgeinfer {__version__}", isa=level)


if __name__ == "__main__":
    main()
