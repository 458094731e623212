"""Measure recurrences beside the machine's roofs: one token, or 512, of one sequence.

    python -m benchmarks.recurrence                  # one thread, the best instruction set
    python -m benchmarks.recurrence -t 2 --isa avx2 --shape granite-4-tiny --json

A program of layers that only recur, with heads and states as released models have, runs on the
executor as a model does. One token reads every layer's state and writes it to another snapshot:
GB/s of both. 512 tokens meet states that stay in the cache: GMAC/s, of which each element of a
state is three (kept, added to, read).

In every round the roofs are measured, then the steps, so that a busy neighbour slows both: memory
read plainly, which no writing reaches, and multiply-adds of float32 on registers alone. A figure is
the median over the rounds of the fastest step's rate, with the share of the roof.
"""

import argparse
import json
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Executable, Limits
from edgeinfer.kernels.native import isa, machine
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

N_IDS = 64
N_PROMPT = 512
MACS = 3  # of an element of a state
ROUNDS = 3
LEAST_STEPS = 2


class Shape(NamedTuple):
    """The recurrence of a model: `heads` of `dim` columns, `groups` of them with the same keys."""

    kind: str
    layers: int
    heads: int
    groups: int
    dim: int
    state: int

    @property
    def n_elements(self) -> int:
        """Elements of all layers' states."""
        return self.layers * self.heads * self.dim * self.state


SHAPES = {
    "granite-4-tiny": Shape("scan", 36, 48, 1, 64, 128),
    "falcon-h1-1.5b": Shape("scan", 24, 48, 1, 64, 256),
    "delta-net": Shape("delta", 24, 32, 16, 128, 128),
}


class Sizes(NamedTuple):
    """What the program says of itself."""

    n_vocab: int
    n_ctx: int = N_PROMPT
    n_ctx_train: int = N_PROMPT
    n_embd: int = 1
    n_layers: int = 1


def written(shape: Shape) -> tuple[Program, dict[str, Tensor]]:
    """Return the program, and its tensors: tables of what the recurrences take, and their own."""
    random = np.random.default_rng(1)
    wide, keys = shape.heads * shape.dim, shape.groups * shape.state
    tensors: dict[str, Tensor] = {}

    def add(name: str, values: np.ndarray) -> None:
        data = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)
        tensors[name] = Tensor(name, values.shape, FORMATS["F32"], data)

    widths = {"x": wide, "write": keys, "read": keys, "step": shape.heads, "other": shape.heads}
    for name, width in widths.items():
        add(f"{name}.weight", random.standard_normal((N_IDS, width)) * width**-0.5)
    for name in ("ssm_a", "ssm_d"):
        add(f"blk.{name}", -np.ones((shape.heads, 1)))
    add("blk.ssm_dt.bias", np.zeros(shape.heads))
    b = Builder("recurrence", tensors)
    x, write, read, step, other = (b.embed(name, N_IDS, w) for name, w in widths.items())
    for _ in range(shape.layers):
        if shape.kind == "scan":
            x = b.ssm_scan(x, write, read, step, "blk", heads=shape.heads, groups=shape.groups)
        else:
            x = b.delta_net(read, write, x, step, other, k_heads=shape.groups, v_heads=shape.heads)
    b.output("logits", b.rows(x))
    return b.finish(Sizes(wide)), tensors


def batch(n_tokens: int, first: int, before: int) -> Batch:
    """Return a step of one sequence that leaves its state in the other snapshot."""
    tokens = np.random.default_rng(2).integers(0, N_IDS, n_tokens)
    pages = np.arange(N_PROMPT // PAGE_LEN)[None]
    positions, last = np.arange(first, first + n_tokens), np.array([n_tokens - 1])
    arrays = (tokens, positions, np.zeros(n_tokens), pages, last, [before], last, [1 - before])
    return Batch(*(np.asarray(array).astype(np.int32) for array in arrays))


class Recurrence:
    """A shape's program, and a state that was begun."""

    def __init__(self, level: str, shape: Shape, n_tokens: int, n_threads: int) -> None:
        self.level, self.shape, self._n_tokens = level, shape, n_tokens
        self._n_threads = n_threads
        limits = Limits(
            n_ctx=N_PROMPT,
            n_pages=N_PROMPT // PAGE_LEN,
            n_batch=N_PROMPT,
            n_threads=n_threads,
            n_snapshots=2,
        )
        program, tensors = written(shape)
        self._executable: Executable = BACKEND.compile(program, tensors, limits, isa_name=level)
        self._executable.run(batch(1, 0, 1))
        first = 0 if n_tokens > 1 else 1
        self._steps = [batch(n_tokens, first, before) for before in range(2)]

    def close(self) -> None:
        """Free it."""
        self._executable.close()

    def round(self, seconds: float) -> tuple[float, float, float]:
        """Return the rate, the roof, and what part of it that is."""
        if self._n_tokens == 1:
            work, roof = 2 * 4 * self.shape.n_elements, machine.read_bandwidth(self._n_threads)
        else:
            work = MACS * self.shape.n_elements * self._n_tokens
            roof = machine.f32_peak(self.level, self._n_threads)
        times: list[float] = []
        while len(times) < LEAST_STEPS or sum(times) < seconds:
            step = self._steps[len(times) % 2]
            start_s = time.perf_counter()
            self._executable.run(step)
            times.append(time.perf_counter() - start_s)
        rate = work / min(times)
        return rate, roof, rate / roof


def measure(level: str, name: str, n_tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return a row of the table."""
    recurrence = Recurrence(level, SHAPES[name], n_tokens, options.threads)
    rounds = [recurrence.round(options.seconds / ROUNDS) for _ in range(ROUNDS)]
    recurrence.close()
    found = dict(zip(("rate", "roof", "share"), zip(*rounds, strict=True), strict=True))
    medians = {key: statistics.median(values) for key, values in found.items()}
    work = 8 if n_tokens == 1 else MACS
    us = 1e6 * work * SHAPES[name].n_elements / medians["rate"]
    return {"isa": level, "shape": name, "n_tokens": n_tokens, "us_of_token": us, **medians}


def main() -> None:
    """Print a table an instruction set, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="*", default=[isa.chosen()], choices=isa.levels())
    parser.add_argument("--shape", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("-t", "--threads", type=int, default=1, help=f"of {default_threads()}")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    rows = []
    for level in options.isa:
        if not options.json:
            print(f"\n{cpu_name()}, {level}, {options.threads} threads\n")
            print("| states of | tokens | us a token | rate | roof | share |")
            print("|:----------|-------:|-----------:|-----:|-----:|------:|")
        for name in options.shape:
            for n_tokens in (1, N_PROMPT):
                rows.append(measure(level, name, n_tokens, options))
                if not options.json:
                    print_row(rows[-1])
    if options.json:
        print(json.dumps(rows, indent=1))


def print_row(row: dict[str, Any]) -> None:
    """Print one line."""
    unit = "GB/s" if row["n_tokens"] == 1 else "GMAC/s"
    rates = f"{row['rate'] / 1e9:.1f} {unit} | {row['roof'] / 1e9:.1f} | {row['share']:.0%}"
    print(
        f"| {row['shape']} | {row['n_tokens']} | {row['us_of_token']:.0f} | {rates} |", flush=True
    )


if __name__ == "__main__":
    main()
