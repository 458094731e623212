"""Measure the first token of a prompt with and without a prefix file, in fresh processes.

    python -m benchmarks.prefix_file smollm2 --tokens 1000 -t 2

The prompt is that many random tokens and 16 more; the prefix file holds the first ones. Each
process loads the model and asks for one token; its load is not counted. The sides take turns.
Clock and CPU seconds are of the call alone, medians; the answers have to be the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.measuring import ROOT

N_BEHIND = 16  # tokens that no file holds


def ids_of(n_vocab: int, n: int) -> list[int]:
    """Return the prompt."""
    return np.random.default_rng(1).integers(10, n_vocab - 10, n + N_BEHIND).tolist()


def child(name: str, n: int, n_threads: int | None, side: str) -> None:
    """Build the file, or answer once, and print what that took."""
    import edgeinfer

    options: dict[str, Any] = {"n_ctx": n + 64, "n_threads": n_threads}
    with edgeinfer.load(name, prefixes=side == "with", **options) as model:
        ids = ids_of(model.n_vocab, n)
        if side == "build":
            print(json.dumps(os.path.getsize(model.keep_prefix(ids[:n]))))
            return
        model.tokenizer.prepare()
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        done = model.generate(ids, max_tokens=1, temperature=0, logprobs=4)
        spent = (time.perf_counter() - start_s, time.process_time() - start_cpu_s)
        print(json.dumps([*spent, done.usage.cached_tokens, repr(done.logprobs)]))


def run(name: str, n: int, n_threads: int | None, side: str) -> Any:
    """Run one side in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.prefix_file", name, "--tokens", str(n)]
    command += ["--side", side] + (["-t", str(n_threads)] if n_threads else [])
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    """Print a table of both sides."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--side", choices=["build", "with", "without"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        child(args.model, args.tokens, args.threads, args.side)
        return
    from edgeinfer.loader.resolve import resolve

    model = str(resolve(args.model))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEINFER_CACHE"] = folder
        n_bytes = run(model, args.tokens, args.threads, "build")
        rounds = [
            [run(model, args.tokens, args.threads, side) for side in ("without", "with")]
            for _ in range(args.repeat)
        ]
    if len({repr(row[3]) for pair in rounds for row in pair}) != 1:
        sys.exit("the answers differ")
    print(f"prefix file: {n_bytes / 1e6:.1f} MB")
    for at, side in enumerate(("without", "with")):
        clock, cpu = (statistics.median(pair[at][i] for pair in rounds) for i in (0, 1))
        print(f"{side:>8}: {clock:.3f} s, {cpu:.3f} CPU s, {rounds[0][at][2]} tokens cached")
    ratios = [[pair[0][i] / pair[1][i] for pair in rounds] for i in (0, 1)]
    clock, cpu = map(statistics.median, ratios)
    print(f"   ratio: {clock:.1f} by the clock, {cpu:.1f} by CPU seconds")


if __name__ == "__main__":
    main()
