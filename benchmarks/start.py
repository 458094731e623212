"""Measure how soon the first token comes and how much memory a run takes, in fresh processes.

    python -m benchmarks.start --peer-python PATH             # smollm2 and gemma3-270m
    python -m benchmarks.start model.gguf --repeat 15 --json

`first token` is the time from the start of the process of `edgeinfer run MODEL -p Hello -n 1` to
the first byte on its stdout; `exit` to its end. The peer does the same in the shortest script that
llama-cpp-python allows (`benchmarks/start_peer.py`). Both are medians, the sides taking turns,
after one start each that warms the page cache and writes the bytecode an installed package has.
`peak` is the most resident memory of a run of 32 tokens (ru_maxrss), mapped file pages included,
beside the size of the model file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from benchmarks.measuring import ROOT
from edgeinfer.cli.machine import cpu_name, default_threads
from edgeinfer.loader.resolve import resolve

PROMPT = "Hello"
PEAK_TOKENS = 32
ALLOWED_BYTES = 200_000_000  # over the file's size, the aim of edgeinfer's peak


class Start(NamedTuple):
    """One process, from its start to its end."""

    first_s: float
    exit_s: float
    peak_bytes: int


def start(command: list[str], environment: dict[str, str]) -> Start:
    """Run a command to its end and clock its first byte on stdout."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - the peer's library talks even when told to be quiet
    start_s = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors
    )
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    first_s = time.perf_counter() - start_s
    while os.read(process.stdout.fileno(), 1 << 16):
        pass
    _, status, usage = os.wait4(process.pid, 0)
    exit_s = time.perf_counter() - start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode != 0 or not first:
        errors.seek(0)
        sys.stderr.write(errors.read().decode(errors="replace"))
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}, {len(first)} bytes written")
    errors.close()
    unit = 1 if sys.platform == "darwin" else 1024
    return Start(first_s, exit_s, usage.ru_maxrss * unit)


def commands(model: str, options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command of each side, up to the number of tokens."""
    threads = str(options.threads)
    ours = [sys.executable, "-m", "edgeinfer.cli", "run", model, "-p", PROMPT, "-t", threads]
    peers = [options.peer_python, "-m", "benchmarks.start_peer", str(resolve(model)), PROMPT]
    return {"edgeinfer": [*ours, "-n"], "peer": [*peers, threads]}


def measure(model: str, options: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Return a model's row: seconds and bytes of each side."""
    sides = commands(model, options)
    starts: dict[str, list[Start]] = {side: [] for side in sides}
    for repeat in range(options.repeat + 1):
        for side, command in sides.items():
            measured = start([*command, "1"], environment)
            if repeat > 0:
                starts[side].append(measured)
    file_bytes = resolve(model).stat().st_size
    row: dict[str, Any] = {
        "model": model,
        "file_bytes": file_bytes,
        "n_threads": options.threads,
        "allowed_bytes": file_bytes + ALLOWED_BYTES,
    }
    for side, found in starts.items():
        row[side] = {
            "first_s": statistics.median(s.first_s for s in found),
            "least_first_s": min(s.first_s for s in found),
            "exit_s": statistics.median(s.exit_s for s in found),
            "peak_bytes": start([*sides[side], str(PEAK_TOKENS)], environment).peak_bytes,
        }
    return row


def main() -> None:
    """Print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("--peer-python", default=sys.executable, help="one that has llama_cpp")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rows = [measure(model, options, environment) for model in options.models]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows, options.repeat)


def print_table(rows: list[dict[str, Any]], repeat: int) -> None:
    """Print a Markdown table, one line a side."""
    print(f"{cpu_name()}, {rows[0]['n_threads']} threads, medians of {repeat}\n")
    print("| model | side | first token s | least | exit s | peak MB | file MB | file + 200 MB |")
    print("|:------|:-----|--------------:|------:|-------:|--------:|--------:|--------------:|")
    for row in rows:
        for side in ("edgeinfer", "peer"):
            found = row[side]
            seconds = (found[key] for key in ("first_s", "least_first_s", "exit_s"))
            print(
                f"| {row['model']} | {side} | {' | '.join(f'{s:.3f}' for s in seconds)} "
                f"| {found['peak_bytes'] / 1e6:.0f} "
                f"| {row['file_bytes'] / 1e6:.0f} | {row['allowed_bytes'] / 1e6:.0f} |"
            )


if __name__ == "__main__":
    main()
