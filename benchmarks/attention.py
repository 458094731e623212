"""Measure attention beside the machine's roofs: one token, or 512, after a context of some length.

    python -m benchmarks.attention                   # one thread, the best instruction set
    python -m benchmarks.attention -t 2 --dim 64 --kv-type q8_0 --context 4096 --json

A program of layers that only attend, 32 query heads over 8 KV heads, runs on the executor as a
model does, storing its keys and values included. There are as many layers as make the context
larger than the last-level cache. One token reads all of it: GB/s of keys and values. 512 tokens:
GMAC/s of what they see, nothing counted above the diagonal.

In every round the roofs are measured, then the steps, so that a busy neighbour slows both: memory
read plainly, and multiply-adds of float32 on registers alone (also beside keys of codes, whose
dots may pass it). A figure is the median over the rounds of the fastest step's rate, with the share
of the roof.
"""

import argparse
import json
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.kernels.backend import KV_TYPES, PAGE_LEN, Batch, Executable, Limits
from edgeinfer.kernels.native import isa, machine
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

HEADS, KV_HEADS = 32, 8
N_IDS = 64
N_PROMPT = 512
STEPS = {"decode": (1, (512, 4096, 16384)), "prefill": (N_PROMPT, (512, 4096))}
LEAST_BYTES = 64 << 20  # of all layers' keys and values: more than the cache holds
MOST_LAYERS = 64
PAIR_BYTES = {"f32": 8, "f16": 4, "q8_0": 2, "q4_0": 1}  # a number of a key and of a value
ROUNDS = 3
LEAST_STEPS = 2


class Shape(NamedTuple):
    """What is measured: a step of so many tokens, the last at the end of the context."""

    step: str
    n_tokens: int
    context: int
    dim: int
    kv_type: str

    @property
    def n_layers(self) -> int:
        """Layers whose contexts do not fit the cache together."""
        n_bytes = self.context * KV_HEADS * self.dim * PAIR_BYTES[self.kv_type]
        return max(1, min(MOST_LAYERS, LEAST_BYTES // n_bytes)) if self.n_tokens == 1 else 1

    @property
    def n_macs(self) -> int:
        """Multiply-adds of one step: keys and values that its tokens see."""
        n_seen = sum(range(self.context - self.n_tokens + 1, self.context + 1))
        return 2 * HEADS * self.dim * n_seen * self.n_layers


class Sizes(NamedTuple):
    """What the program says of itself."""

    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_embd: int = 1
    n_layers: int = 1


def written(shape: Shape) -> tuple[Program, dict[str, Tensor]]:
    """Return the program, and its tensors: a table each of queries, keys and values."""
    random = np.random.default_rng(1)
    widths = {"q": HEADS * shape.dim, "k": KV_HEADS * shape.dim, "v": KV_HEADS * shape.dim}
    tensors = {}
    for name, width in widths.items():
        table = random.standard_normal((N_IDS, width)).astype(np.float32)
        data = table.reshape(-1).view(np.uint8)
        tensors[f"{name}.weight"] = Tensor(f"{name}.weight", table.shape, FORMATS["F32"], data)
    b = Builder("attention", tensors)
    x, k, v = (b.embed(name, N_IDS, width) for name, width in widths.items())
    for _ in range(shape.n_layers):
        kv = b.kv(KV_HEADS, shape.dim, shape.dim)
        b.kv_store(k, v, kv)
        x = b.attention(x, kv, HEADS, scale=shape.dim**-0.5)
    b.output("logits", b.rows(x))
    return b.finish(Sizes(widths["q"], shape.context, shape.context)), tensors


def batch(positions: np.ndarray, sequences: np.ndarray, page_tables: np.ndarray) -> Batch:
    """Return a step whose last row alone is wanted."""
    tokens = np.random.default_rng(2).integers(0, N_IDS, len(positions))
    arrays = (tokens, positions, sequences, page_tables, np.array([len(positions) - 1]))
    return Batch(*(array.astype(np.int32) for array in arrays))


class Attention:
    """A shape's program, its pages written."""

    def __init__(self, level: str, shape: Shape, n_threads: int) -> None:
        self.level, self.shape, self._n_threads = level, shape, n_threads
        n_pages = shape.context // PAGE_LEN
        limits = Limits(
            n_ctx=shape.context,
            n_pages=n_pages,
            n_batch=N_PROMPT,
            n_threads=n_threads,
            kv_type=shape.kv_type,
        )
        program, tensors = written(shape)
        self._executable: Executable = BACKEND.compile(program, tensors, limits, isa_name=level)
        for first in range(0, n_pages, N_PROMPT // PAGE_LEN):  # a sequence for each page
            pages = np.arange(first, first + N_PROMPT // PAGE_LEN)
            rows = np.arange(N_PROMPT)
            self._executable.run(batch(rows % PAGE_LEN, rows // PAGE_LEN, pages[:, None]))
        positions = np.arange(shape.context - shape.n_tokens, shape.context)
        self._batch = batch(positions, np.zeros(shape.n_tokens), np.arange(n_pages)[None])

    def close(self) -> None:
        """Free it."""
        self._executable.close()

    def round(self, seconds: float) -> tuple[float, float, float]:
        """Return the rate, the roof, and what part of it that is."""
        if self.shape.n_tokens == 1:
            work, roof = self._executable.state_bytes, machine.read_bandwidth(self._n_threads)
        else:
            work, roof = self.shape.n_macs, machine.f32_peak(self.level, self._n_threads)
        times: list[float] = []
        while len(times) < LEAST_STEPS or sum(times) < seconds:
            start_s = time.perf_counter()
            self._executable.run(self._batch)
            times.append(time.perf_counter() - start_s)
        rate = work / min(times)
        return rate, roof, rate / roof


def measure(level: str, shape: Shape, options: argparse.Namespace) -> dict[str, Any]:
    """Return a row of the table."""
    attention = Attention(level, shape, options.threads)
    rounds = [attention.round(options.seconds / ROUNDS) for _ in range(ROUNDS)]
    attention.close()
    found = dict(zip(("rate", "roof", "share"), zip(*rounds, strict=True), strict=True))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {"isa": level, **shape._asdict(), **medians}


def main() -> None:
    """Print a table an instruction set, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="*", default=[isa.chosen()], choices=isa.levels())
    parser.add_argument("--dim", nargs="*", type=int, default=[64, 128, 256], help="of a head")
    parser.add_argument("--kv-type", nargs="*", default=KV_TYPES, choices=KV_TYPES)
    parser.add_argument("--context", nargs="*", type=int, help="those of 512, 4096 and 16384")
    parser.add_argument("-t", "--threads", type=int, default=1, help=f"of {default_threads()}")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    shapes = [
        Shape(step, n_tokens, context, dim, kv_type)
        for step, (n_tokens, contexts) in STEPS.items()
        for context in contexts
        if options.context is None or context in options.context
        for dim in options.dim
        for kv_type in options.kv_type
    ]
    rows = []
    for level in options.isa:
        if not options.json:
            print(f"\n{cpu_name()}, {level}, {options.threads} threads\n")
            print("| step | context | head | KV | rate | roof | share |")
            print("|:-----|--------:|-----:|:---|-----:|-----:|------:|")
        for shape in shapes:
            rows.append(measure(level, shape, options))
            if not options.json:
                print_row(rows[-1])
    if options.json:
        print(json.dumps(rows, indent=1))


def print_row(row: dict[str, Any]) -> None:
    """Print one line."""
    unit = "GB/s" if row["n_tokens"] == 1 else "GMAC/s"
    rates = f"{row['rate'] / 1e9:.1f} {unit} | {row['roof'] / 1e9:.1f} | {row['share']:.0%}"
    print(
        f"| {row['step']} | {row['context']} | {row['dim']} | {row['kv_type']} | {rates} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
