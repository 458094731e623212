"""Measure the matmul of every format on one thread: GB/s of one token, GMAC/s of 256 tokens.

    python -m benchmarks.kernels                     # every instruction set and format
    python -m benchmarks.kernels --isa avx2 --format Q4_K Q8_0 --json

Each figure is the best of the steps that fit into `--seconds`, of a program that holds an embedding
and one matrix, run by the executor as in a model: quantizing the activations is part of it. One
token reads a matrix of `--megabytes`, larger than the last-level cache, so GB/s stands beside the
rate at which one thread streams memory (`ei_stream_rate`); 256 tokens meet one that stays in the
cache. `coarse` activations have 8 bits, `fine` ones 15; the float formats take float32 ones and
stand under coarse.
"""

import argparse
import json
import time
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from edgeinfer.cli.machine import cpu_name
from edgeinfer.kernels import precision
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Executable, Limits
from edgeinfer.kernels.native import isa
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
STREAM_BYTES = 256 << 20
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


def compiled(level: str, format_name: str, n_rows: int, n_tokens: int, *, fine: bool) -> Executable:
    """Compile the program with one thread, at an instruction set and a precision."""
    tensors = tensors_of(format_name, n_rows)
    limits = Limits(n_ctx=N_TOKENS, n_pages=1, n_batch=n_tokens, n_threads=1)
    with patch.object(precision, "policy", lambda program: lambda name: fine):
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


def measure(level: str, format_name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return a row of the table."""
    row: dict[str, Any] = {"isa": level, "format": format_name}
    row_bytes = FORMATS[format_name].row_bytes(N_COLUMNS)
    n_rows = -(-options.megabytes * 1_000_000 // row_bytes) // DISTINCT_ROWS * DISTINCT_ROWS
    for activations, fine in (("coarse", False), ("fine", True)):
        if fine and format_name in FLOAT_FORMATS:
            continue
        executable = compiled(level, format_name, n_rows, 1, fine=fine)
        step_s = best_step_s(executable, 1, options.seconds)
        executable.close()
        row[f"{activations}_gb_per_s"] = n_rows * row_bytes / step_s / 1e9
        executable = compiled(level, format_name, CACHED_ROWS, N_TOKENS, fine=fine)
        step_s = best_step_s(executable, N_TOKENS, options.seconds)
        executable.close()
        row[f"{activations}_gmac_per_s"] = CACHED_ROWS * N_COLUMNS * N_TOKENS / step_s / 1e9
    return row


def main() -> None:
    """Print a table of every instruction set, or JSON."""
    names = ffi.string(lib.ei_format_names()).decode().split()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="*", default=list(isa.levels()), choices=isa.levels())
    parser.add_argument("--format", nargs="*", default=names, choices=names)
    parser.add_argument("--megabytes", type=int, default=128, help="of the one-token matrix")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    rate = lib.ei_stream_rate(1, STREAM_BYTES) / 1e9
    rows = []
    for level in options.isa:
        if not options.json:
            print(f"\n{cpu_name()}, {level}, one thread; memory streams at {rate:.1f} GB/s\n")
            print("| format | coarse GB/s | fine GB/s | coarse GMAC/s | fine GMAC/s |")
            print("|:-------|------------:|----------:|--------------:|------------:|")
        for format_name in options.format:
            rows.append(measure(level, format_name, options))
            if not options.json:
                print_row(rows[-1])
    if options.json:
        print(json.dumps({"stream_gb_per_s": rate, "rows": rows}, indent=1))


def print_row(row: dict[str, Any]) -> None:
    """Print one format's line."""
    keys = [f"{a}_{unit}" for unit in ("gb_per_s", "gmac_per_s") for a in ("coarse", "fine")]
    cells = [f"{row[key]:.1f}" if key in row else "" for key in keys]
    print(f"| {row['format']} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
