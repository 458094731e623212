"""Measure how much of its speed edgeinfer keeps when cores are short; no peer.

    python -m benchmarks.disturbed 1b:q4_k_m               # or a path, or a catalogue name
    python -m benchmarks.disturbed smollm2 --rounds 9 --json

States: `quiet`; a busy process on the last CPU (`pinned`) or wherever it likes (`free`); threads
for each CPU twice and eight times over (`2x`, `8x`). Every round measures a prompt and an answer in
every state; a figure is the median over the rounds of the rate by that of `quiet` in that round.
"""

import argparse
import json
import statistics
import sys
from typing import Any

from benchmarks import synthetic
from benchmarks.burner import burning
from benchmarks.measuring import N_BATCH, measure, parse_row
from benchmarks.side_edgeinfer import Ours, pages_of
from edgeinfer.arch import build_program
from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.kernels.backend import Limits
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.loader.gguf import open_gguf

STATES = {
    "quiet": (1, None),
    "pinned": (1, "pinned"),
    "free": (1, "free"),
    "2x": (2, None),
    "8x": (8, None),
}


def main() -> None:
    """Print a line a state, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="1b:q4_k_m")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--test", nargs="*", default=["pp128", "tg16"])
    parser.add_argument("--state", nargs="*", default=list(STATES), choices=list(STATES))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    synthetic.add_options(parser)
    options = parser.parse_args()
    rates = measured(options)
    print(json.dumps(rates, indent=1)) if options.json else print_table(rates, options)


def measured(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the rates of each state and test, one a round."""
    rows = [parse_row(name) for name in options.test]
    states = {"quiet": STATES["quiet"]} | {name: STATES[name] for name in options.state}
    n_ctx = max(row.n_ctx for row in rows)
    n_pages = max(row.n_sequences * pages_of(row.n_ctx) for row in rows)
    rates: dict[str, dict[str, list[float]]] = {
        state: {row.name: [] for row in rows} for state in states
    }
    with open_gguf(synthetic.model_file(options.model, options)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        made: dict[int, Any] = {}
        for times, _ in states.values():
            limits = Limits(
                n_ctx=n_ctx, n_pages=n_pages, n_batch=N_BATCH, n_threads=times * options.threads
            )
            made[times] = made.get(times) or BACKEND.compile(program, file.tensors, limits)
        for i in range(options.rounds):
            print(f"round {i + 1} of {options.rounds}", file=sys.stderr, flush=True)
            names = list(states)
            for name in names[i % len(names) :] + names[: i % len(names)]:
                times, way = states[name]
                with burning(way):
                    for row in rows:
                        runner = Ours(made[times], row.n_sequences, row.n_ctx)
                        rates[name][row.name].append(measure(runner, row, 1))
        for executable in made.values():
            executable.close()
    return rates


def print_table(rates: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    """Print a Markdown table."""
    print(f"\n{options.model}: {cpu_name()}, {options.threads} threads, {options.rounds} rounds\n")
    print("| state | test | median t/s | of quiet | lowest | highest |")
    print("|:------|:-----|-----------:|---------:|-------:|--------:|")
    for state, tests in rates.items():
        for test, found in tests.items():
            kept = [a / b for a, b in zip(found, rates["quiet"][test], strict=True)]
            print(
                f"| {state} | {test} | {statistics.median(found):.1f} "
                f"| **{statistics.median(kept):.0%}** | {min(kept):.0%} | {max(kept):.0%} |"
            )


if __name__ == "__main__":
    main()
