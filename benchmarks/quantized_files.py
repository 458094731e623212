"""Quantize a model by each recipe, run the file with llama-cpp-python, and say what it took.

    python -m benchmarks.quantized_files model-f16.gguf --peer-python PATH
    python -m benchmarks.quantized_files big-f16.gguf --peer-python PATH --compare --no-run

`wall` runs until the file is on the disk, `cpu` is the processor time of the whole process, start
included, `peak` its most resident memory; with --compare the peer makes the same recipe,
the sides taking turns, and `faster` is the median of the peer's time by ours. `wrote` is what the
peer completes the prompt with, greedily, from our file.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import ROOT
from edgeinfer.quant.recipe import RECIPES

PROMPT = "The capital of France is"
N_TOKENS = 6


class Took(NamedTuple):
    """What a process took."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: str


def run(command: list[str]) -> Took:
    """Run a command to its end; leave with its errors if it fails."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the peer's library talks when told to be quiet
    start_s = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        errors.seek(0)
        sys.stderr.write(errors.read().decode(errors="replace")[-4000:])
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    return Took(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss << 10, output)


def main() -> None:
    """Print a row for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--recipes", nargs="+", default=[*RECIPES], metavar="NAME")
    parser.add_argument("--imatrix", type=Path, help="that our side is given")
    parser.add_argument("--threads", "-t", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where files go (default: a temporary one)")
    parser.add_argument("--compare", action="store_true", help="quantize with the peer as well")
    parser.add_argument("--repeat", type=int, default=1, help="times that each side does it")
    parser.add_argument("--no-run", action="store_true", help="do not run the files")
    args = parser.parse_args()
    print("| recipe | MB | wall s, cpu s, peak MB | peer's | faster: wall | cpu | peer wrote |")
    print("|:--|--:|--:|--:|--:|--:|:--|")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        target = Path(folder) / "out.gguf"
        for recipe in args.recipes:
            print(_row(args, recipe, target), flush=True)


def _row(args: argparse.Namespace, recipe: str, target: Path) -> str:
    source, threads = str(args.source.absolute()), str(args.threads)
    command = [sys.executable, "-m", "edgeinfer.cli", "quantize", source, str(target), recipe]
    command += ["-t", threads, "--force", "--allow-requantize"]
    if args.imatrix is not None:
        command += ["--imatrix", str(args.imatrix.absolute())]
    file_type = str(RECIPES[recipe].file_type)
    peer = [args.peer_python, "benchmarks/quantize_peer.py", source, str(target)]
    ours, theirs = [], []
    for _ in range(args.repeat):
        if args.compare:
            theirs.append(until_on_disk([*peer, file_type, threads], target))
        ours.append(until_on_disk(command, target))
    cells = [recipe, f"{target.stat().st_size / 1e6:.1f}", _medians(ours)]
    if args.compare:
        pairs = list(zip(theirs, ours, strict=True))
        cells.append(_medians(theirs))
        cells.append(f"{statistics.median(a.wall_s / b.wall_s for a, b in pairs):.2f}")
        cells.append(f"{statistics.median(a.cpu_s / b.cpu_s for a, b in pairs):.2f}")
    else:
        cells += ["", "", ""]
    if args.no_run:
        cells.append("")
    else:
        command = [args.peer_python, "benchmarks/start_peer.py", str(target), PROMPT]
        cells.append(repr(run([*command, threads, str(N_TOKENS)]).output))
    return "| " + " | ".join(cells) + " |"


def until_on_disk(command: list[str], target: Path) -> Took:
    """Run a command that writes a file; its time ends when the disk has all of it."""
    os.sync()
    took = run(command)
    start_s = time.perf_counter()
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return took._replace(wall_s=took.wall_s + time.perf_counter() - start_s)


def _medians(runs: list[Took]) -> str:
    wall_s = statistics.median(took.wall_s for took in runs)
    cpu_s = statistics.median(took.cpu_s for took in runs)
    peak_bytes = statistics.median(took.peak_bytes for took in runs)
    return f"{wall_s:.1f}, {cpu_s:.1f}, {peak_bytes / 1e6:.0f}"


if __name__ == "__main__":
    main()
