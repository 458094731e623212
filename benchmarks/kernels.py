"""Measure the matmul of every format beside the machine's roofs: 1, 2, 4, 8 and 256 tokens.

    python -m benchmarks.kernels                     # the best instruction set, every format
    python -m benchmarks.kernels --isa avx2 scalar --format Q4_K Q8_0 -t 2 --json

A program that holds an embedding and one matrix runs on the executor as a model does: quantizing
the activations is part of it. Up to 8 tokens read a matrix of `--megabytes`, larger than the
last-level cache: GB/s of weights; 256 tokens meet one that stays in the cache: GMAC/s.

In every round the roofs are measured, then the steps, so that a busy neighbour slows both: memory
read plainly, and the multiply instructions of the same instruction set on registers alone (of
bytes, or for the float formats of float32). A figure is the median over the rounds of the fastest
step's rate, the share beside it the median of what part that is of the nearer roof. `coarse`
activations have 8 bits; `fine` ones have 15 and meet the codes twice, which no roof counts.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.kernels import precision
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Executable, Limits
from edgeinfer.kernels.native import isa, machine
from edgeinfer.kernels.native._native import ffi, lib  # noqa: TID251
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels.law import FLOAT_FORMATS
from tests.kernels.random_weights import random_blocks, with_format

N_COLUMNS = 2048
N_TOKENS = 256
CACHED_ROWS = 1024  # of the matrix that many tokens meet
TABLE_ROWS = 256
DISTINCT_ROWS = 16  # of weights; a matrix repeats them
MOST_STREAMED = 8  # tokens that still meet the large matrix
COLUMNS = (1, 2, 4, MOST_STREAMED, N_TOKENS)
ROUNDS = 3
LEAST_STEPS = 2


class Sizes(NamedTuple):
    """What the program says of itself."""

    n_vocab: int
    n_embd: int = N_COLUMNS
    n_layers: int = 1
    n_ctx: int = N_TOKENS
    n_ctx_train: int = N_TOKENS


def tensors_of(format_name: str, n_rows: int) -> dict[str, Tensor]:
    """Return a table of embeddings and the matrix: random codes, scales as models have them."""
    random = np.random.default_rng(1)
    table = random.standard_normal((TABLE_ROWS, N_COLUMNS)).astype(np.float32)
    if format_name in FLOAT_FORMATS:
        data = np.frombuffer(with_format(table[:DISTINCT_ROWS], format_name)[2], np.uint8)
    else:
        data = random_blocks(random, format_name, DISTINCT_ROWS * N_COLUMNS, 0.01).ravel()
    matrix = np.tile(data, n_rows // DISTINCT_ROWS)
    return {
        "token_embd.weight": Tensor(
            "token_embd.weight", table.shape, FORMATS["F32"], table.view(np.uint8).ravel()
        ),
        "output.weight": Tensor("output.weight", (n_rows, N_COLUMNS), FORMATS[format_name], matrix),
    }


def program_of(tensors: dict[str, Tensor]) -> Program:
    """Return a program that multiplies every token's embedding and shows the last one's result."""
    n_rows = tensors["output.weight"].shape[0]
    b = Builder("llama", tensors)
    x = b.embed("token_embd", TABLE_ROWS, N_COLUMNS)
    b.output("logits", b.rows(b.linear(x, "output", n_rows)))
    return b.finish(Sizes(n_rows))


def compiled(
    level: str, format_name: str, n_rows: int, n_tokens: int, n_threads: int, *, fine: bool
) -> Executable:
    """Compile the program for steps of up to `n_tokens`, at an instruction set and a precision."""
    tensors = tensors_of(format_name, n_rows)
    limits = Limits(n_ctx=N_TOKENS, n_pages=1, n_batch=n_tokens, n_threads=n_threads)
    with patch.object(precision, "policy", lambda *program: lambda name: fine):
        return BACKEND.compile(program_of(tensors), tensors, limits, isa_name=level)


def best_step_s(executable: Executable, n_tokens: int, seconds: float) -> float:
    """Return the seconds of the fastest step of `n_tokens`."""
    batch = Batch(
        tokens=np.arange(n_tokens, dtype=np.int32) % TABLE_ROWS,
        positions=np.arange(n_tokens, dtype=np.int32),
        sequences=np.zeros(n_tokens, np.int32),
        page_tables=np.zeros((1, -(-N_TOKENS // PAGE_LEN)), np.int32),
        wanted=np.array([n_tokens - 1], np.int32),
    )
    executable.run(batch)
    times: list[float] = []
    while len(times) < LEAST_STEPS or sum(times) < seconds:
        start_s = time.perf_counter()
        executable.run(batch)
        times.append(time.perf_counter() - start_s)
    return min(times)


class Kernel:
    """One format's matmul at an instruction set and a precision, in both sizes."""

    def __init__(
        self, level: str, format_name: str, options: argparse.Namespace, *, fine: bool
    ) -> None:
        self.level, self.format_name, self.fine = level, format_name, fine
        self._n_threads, self._seconds = options.threads, options.seconds
        self._row_bytes = FORMATS[format_name].row_bytes(N_COLUMNS)
        n_rows = -(-options.megabytes * 1_000_000 // self._row_bytes)
        self._n_rows = n_rows // DISTINCT_ROWS * DISTINCT_ROWS
        sizes = ((self._n_rows, MOST_STREAMED), (CACHED_ROWS, N_TOKENS))
        self._large, self._cached = (
            compiled(level, format_name, n, n_tokens, self._n_threads, fine=fine)
            for n, n_tokens in sizes
        )

    def close(self) -> None:
        """Free both."""
        self._large.close()
        self._cached.close()

    def round(self) -> tuple[dict[str, float], dict[int, tuple[float, float]]]:
        """Return the roofs, and of each column the rate and its share of the nearer roof."""
        peak = machine.f32_peak if self.format_name in FLOAT_FORMATS else machine.int8_peak
        memory = machine.read_bandwidth(self._n_threads)
        macs = peak(self.level, self._n_threads)
        return {"memory": memory, "macs": macs}, {n: self._column(n, memory, macs) for n in COLUMNS}

    def _column(self, n_tokens: int, memory: float, macs: float) -> tuple[float, float]:
        if n_tokens > MOST_STREAMED:
            step_s = best_step_s(self._cached, n_tokens, self._seconds / ROUNDS)
            n_macs = CACHED_ROWS * N_COLUMNS * n_tokens
            return n_macs / step_s, n_macs / step_s / macs
        step_s = best_step_s(self._large, n_tokens, self._seconds / ROUNDS)
        n_bytes, n_macs = self._n_rows * self._row_bytes, self._n_rows * N_COLUMNS * n_tokens
        return n_bytes / step_s, max(n_bytes / memory, n_macs / macs) / step_s


def measure(kernel: Kernel) -> dict[str, Any]:
    """Return a row of the table."""
    rounds = [kernel.round() for _ in range(ROUNDS)]
    roofs = {name: statistics.median(r[name] for r, _ in rounds) for name in ("memory", "macs")}
    columns = {
        str(n): {
            "rate": statistics.median(found[n][0] for _, found in rounds),
            "share": statistics.median(found[n][1] for _, found in rounds),
        }
        for n in COLUMNS
    }
    activations = (
        "float" if kernel.format_name in FLOAT_FORMATS else ("coarse", "fine")[kernel.fine]
    )
    return {
        "isa": kernel.level,
        "format": kernel.format_name,
        "activations": activations,
        "roofs": roofs,
        "tokens": columns,
    }


def rows_of(level: str, format_name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a format's rows: one for each precision it is used with."""
    for fine in (False,) if format_name in FLOAT_FORMATS else (False, True):
        kernel = Kernel(level, format_name, options, fine=fine)
        yield measure(kernel)
        kernel.close()


def main() -> None:
    """Print a table an instruction set, or JSON."""
    names = ffi.string(lib.ei_format_names()).decode().split()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="*", default=[isa.chosen()], choices=isa.levels())
    parser.add_argument("--format", nargs="*", default=names, choices=names)
    parser.add_argument("-t", "--threads", type=int, default=1, help=f"of {default_threads()}")
    parser.add_argument("--megabytes", type=int, default=128, help="of the matrix few tokens read")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    rows = []
    for level in options.isa:
        if not options.json:
            print(f"\n{cpu_name()}, {level}, {options.threads} threads\n")
            print(
                "| format | activations | 1: GB/s | 2 | 4 | 8 | 256: GMAC/s | memory | multiply |"
            )
            print(
                "|:-------|:------------|--------:|--:|--:|--:|------------:|-------:|---------:|"
            )
        for format_name in options.format:
            for row in rows_of(level, format_name, options):
                rows.append(row)
                if not options.json:
                    print_row(row)
    if options.json:
        print(json.dumps(rows, indent=1))


def print_row(row: dict[str, Any]) -> None:
    """Print one line."""
    cells = [f"{c['rate'] / 1e9:.1f} ({c['share']:.0%})" for c in row["tokens"].values()]
    cells += [f"{row['roofs'][name] / 1e9:.1f}" for name in ("memory", "macs")]
    print(f"| {row['format']} | {row['activations']} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
