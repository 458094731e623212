"""Measure whole models against llama-cpp-python: prompts read, tokens written, in one run.

    python -m benchmarks.models --peer-python PATH            # smollm2 and gemma3-270m
    python -m benchmarks.models model.gguf -t 2 --rounds 7 --json

Each round runs each side once, in a process of its own that loads the model and measures every
row; the order is swapped from round to round, so that a machine that slows down slows both. A
row's rate in a process is the best of `--repeats`; the ratio is the median over the rounds of
edgeinfer's rate by the peer's. `pp` reads a prompt at once, `tg` writes tokens one by one, `@ d`
gives the tokens already in context; token ids are random, nothing is sampled, a prompt gives the
logits of its last token. Both sides get the same threads and steps of at most 512 tokens.

The peer runs with the best of its options for each row: flash attention on or off, weights
repacked at load or not, chosen by a round of their own before the counted ones. Which instruction
sets it uses was decided when it was built: build it from its source distribution on this machine.
"""

import argparse
import json
import statistics
import sys
from itertools import product
from typing import Any

from benchmarks.measuring import ROWS, run_side
from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.loader.resolve import resolve

OPTIONS = [{"flash": flash, "repack": repack} for flash, repack in product((False, True), repeat=2)]
Rates = dict[str, float]


class Comparison:
    """The two sides of one model."""

    def __init__(self, model: str, options: argparse.Namespace) -> None:
        self.model = model
        self.peer_python = options.peer_python
        self.job: dict[str, Any] = {
            "model": str(resolve(model)),
            "n_threads": options.threads,
            "repeats": options.repeats,
            "rows": [row for row in ROWS if row.name in options.test],
        }
        self.about: dict[str, str] = {}
        self.peer_options: dict[str, dict[str, bool]] = {}

    def ours(self) -> Rates:
        """Run edgeinfer's process."""
        return self._rates(run_side(sys.executable, "side_edgeinfer", self.job))

    def peers(self, options: dict[str, dict[str, bool]]) -> Rates:
        """Run the peer's process, with options for each row."""
        return self._rates(run_side(self.peer_python, "side_peer", self.job | {"options": options}))

    def _rates(self, found: dict[str, Any]) -> Rates:
        rates: Rates = found.pop("rates")
        self.about |= found
        return rates

    def choose_peer_options(self) -> None:
        """Find the options with which the peer is fastest, row by row."""
        best: Rates = {}
        for options in OPTIONS:
            print(f"{self.model}: peer with {options}", file=sys.stderr)
            for name, rate in self.peers({row.name: options for row in self.job["rows"]}).items():
                if rate > best.get(name, 0.0):
                    best[name] = rate
                    self.peer_options[name] = options

    def rounds(self, n_rounds: int) -> list[tuple[Rates, Rates]]:
        """Return (ours, peer's) of each round."""
        found = []
        for i in range(n_rounds):
            print(f"{self.model}: round {i + 1} of {n_rounds}", file=sys.stderr)
            if i % 2 == 0:
                ours, peers = self.ours(), self.peers(self.peer_options)
            else:
                peers, ours = self.peers(self.peer_options), self.ours()
            found.append((ours, peers))
        return found

    def results(self, n_rounds: int) -> list[dict[str, Any]]:
        """Return one object a row: rates of every round, their medians and bests, the ratio."""
        self.choose_peer_options()
        rounds = self.rounds(n_rounds)
        rows = []
        for name in (row.name for row in self.job["rows"]):
            ours = [mine[name] for mine, _ in rounds]
            peers = [theirs[name] for _, theirs in rounds]
            ratios = [a / b for a, b in zip(ours, peers, strict=True)]
            rows.append(
                {
                    "model": self.model,
                    "test": name,
                    "ratio": statistics.median(ratios),
                    "ratios": ratios,
                    "edgeinfer": {"median": statistics.median(ours), "best": max(ours)},
                    "peer": {"median": statistics.median(peers), "best": max(peers)},
                    "peer_options": self.peer_options[name],
                    "n_threads": self.job["n_threads"],
                    **self.about,
                }
            )
        return rows


def main() -> None:
    """Print a table a model, or one JSON list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("--peer-python", default=sys.executable, help="one that has llama_cpp")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="of each row in a process")
    names = [row.name for row in ROWS]
    parser.add_argument("--test", nargs="*", default=names, choices=names)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    all_rows = []
    for model in options.models:
        rows = Comparison(model, options).results(options.rounds)
        all_rows += rows
        if not options.json:
            print_table(model, rows, options.rounds)
    if options.json:
        print(json.dumps(all_rows, indent=1))


def print_table(model: str, rows: list[dict[str, Any]], n_rounds: int) -> None:
    """Print a model's rows as a Markdown table."""
    about = rows[0]
    print(f"\n{model}: {cpu_name()}, {about['n_threads']} threads, {n_rounds} rounds")
    print(f"{about['version']} ({about['isa']}) beside {about['peer_version']}\n")
    print(
        "| test | edgeinfer t/s | best | peer t/s | best | ratio | lowest | highest | peer with |"
    )
    print(
        "|:-----|--------------:|-----:|---------:|-----:|------:|-------:|--------:|:----------|"
    )
    for row in rows:
        ours, peers = row["edgeinfer"], row["peer"]
        chosen = " + ".join(name for name, on in row["peer_options"].items() if on) or "neither"
        print(
            f"| {row['test']} | {ours['median']:.1f} | {ours['best']:.1f} "
            f"| {peers['median']:.1f} | {peers['best']:.1f} | **{row['ratio']:.2f}** "
            f"| {min(row['ratios']):.2f} | {max(row['ratios']):.2f} | {chosen} |"
        )


if __name__ == "__main__":
    main()
