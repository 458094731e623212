"""Measure whole models against llama-cpp-python: prompts read, tokens written, in one run.

    python -m benchmarks.models --peer-python PATH            # smollm2 and gemma3-270m
    python -m benchmarks.models model.gguf 1b:q4_k_m -t 2 --rounds 7 --json --test pp512 tg64@8k

A model is a path, a catalogue name, or SHAPE:RECIPE, a file of random weights (`--folder`). A row
is ppN, a prompt of N tokens read at once, or tgN, N tokens written one by one; @D or @8k gives the
tokens already in context, xS the sequences that write side by side. Token ids are random, nothing
is sampled, a prompt gives the logits of its last token. Both sides get the same threads and steps
of at most 512 tokens. `comparison.py` says how the sides take turns; a row's rate in a process is
the best of `--repeats`; the ratio is the median over the rounds of edgeinfer's rate by the peer's.

The peer runs with the best of its options for each row (flash attention, weights repacked at load,
one cache for all sequences), chosen by a round of their own before the counted ones, and as it
comes beside that. Its instruction sets were decided when it was built: build it on this machine.

Beside our rates stands the share of the roof, measured by the same process: for tg the bytes of
weights, keys and values over the memory's reading speed, for pp the multiply-adds of the matrices
over what the instruction set does on registers alone. `--burn` keeps a busy process running beside
both sides. `--journal` keeps every process's answer in a file; with `--minutes` too, the run ends
in time (exit code 75) and the same command goes on where it stopped.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import synthetic
from benchmarks.burner import WAYS
from benchmarks.comparison import Comparison, chosen, roof_text, rows_of
from benchmarks.journal import Journal, OutOfTimeError
from edgeinfer.cli.machine import cpu_name, default_threads

SHORT = ("pp64", "pp512", "tg64")
ALL = ("pp16", "pp64", "pp256", "pp512", "pp4096", "tg64", "tg64@2k", "tg64@8k", "tg64x4", "tg64x8")
CUT_SHORT = 75  # EX_TEMPFAIL: run again


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every comparison reads."""
    parser.add_argument("--peer-python", default=sys.executable, help="one that has llama_cpp")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="of each row in a process")
    parser.add_argument("--journal", type=Path, help="JSON lines; read first, then added to")
    parser.add_argument("--minutes", type=float, help="begin nothing after this long")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    synthetic.add_options(parser)


def main() -> None:
    """Print a table a model, or one JSON list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("--test", nargs="*", default=SHORT, help=f"rows, such as {' '.join(ALL)}")
    parser.add_argument("--isa", help="force a level of edgeinfer's kernels")
    parser.add_argument("--burn", choices=WAYS, help="a busy process beside both sides")
    add_options(parser)
    options = parser.parse_args()
    try:
        rows = rows_of(list(options.test))
    except ValueError as error:
        parser.error(str(error))
    journal = Journal(options.journal, options.minutes)
    all_results = []
    for model in options.models:
        comparison = Comparison(
            journal,
            options.peer_python,
            model,
            file=str(synthetic.model_file(model, options)),
            rows=rows,
            n_threads=options.threads,
            repeats=options.repeats,
            isa=options.isa,
            burn=options.burn,
        )
        try:
            results = comparison.results(options.rounds)
        except OutOfTimeError:
            print(f"{model}: the time is over; the same command goes on", file=sys.stderr)
            sys.exit(CUT_SHORT)
        all_results += results
        if not options.json:
            print_table(model, results, options.rounds)
    if options.json:
        print(json.dumps(all_results, indent=1))


def print_table(model: str, results: list[dict[str, Any]], n_rounds: int) -> None:
    """Print a model's rows as a Markdown table."""
    about = results[0]
    burn = f", beside a busy process ({about['burn']})" if about["burn"] else ""
    print(f"\n{model}: {cpu_name()}, {about['n_threads']} threads, {n_rounds} rounds{burn}")
    print(f"{about['version']} ({about['isa']}) beside {about['peer_version']}\n")
    kept = " of undisturbed |" if about["burn"] else ""
    print(
        "| test | edgeinfer t/s | best | of the roof | peer t/s | best | ratio | lowest | highest "
        "| peer with | default peer t/s | ratio |" + kept
    )
    print(
        "|:-----|--------------:|-----:|------------:|---------:|-----:|------:|-------:|--------:"
        "|:----------|-----------------:|------:|" + ("---------------:|" if kept else "")
    )
    for result in results:
        ours, peer = result["edgeinfer"], result["peer"]
        print(
            f"| {result['test']} | {ours['median']:.1f} | {ours['best']:.1f} | {roof_text(result)} "
            f"| {peer['median']:.1f} | {peer['best']:.1f} | **{result['ratio']:.2f}** "
            f"| {min(result['ratios']):.2f} | {max(result['ratios']):.2f} "
            f"| {chosen(result['peer_options'])} | {result['default']['median']:.1f} "
            f"| {result['default_ratio']:.2f} |" + (f" {result['kept']:.0%} |" if kept else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
