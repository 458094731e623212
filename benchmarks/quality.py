"""Compare perplexity with that of llama-cpp-python on the same file, text and windows.

    python -m benchmarks.quality -f text.txt --peer-python ~/peer/bin/python
    python -m benchmarks.quality -f text.txt --peer-python ~/peer/bin/python --chunks 8 model.gguf

Both round differently (activations, keys and values), so the figures agree but for that; `ln ratio`
is the log of the quotient of the two perplexities, below 0 where edgeinfer's is the smaller.
"""

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np

from edgeinfer.evaluating.measured import Measured, exp_of, mean_of
from edgeinfer.evaluating.rows import negative_log_likelihoods
from edgeinfer.evaluating.windows import cut
from edgeinfer.loader.resolve import resolve
from edgeinfer.model import load


def ours(path: Path, text: str, n_ctx: int, chunks: int, n_threads: int) -> np.ndarray:
    """Return the negative log-likelihood of each token that counts."""
    parts = []
    with load(path, n_ctx=n_ctx, n_threads=n_threads, speculate=False) as model:
        windows = cut(model.tokenizer, text, n_ctx=n_ctx, most=chunks)
        for index, ids in enumerate(windows.ids):
            labels = windows.labels(index)
            for first, rows in model.stream_logits(ids[:-1], first=windows.first):
                at = first - windows.first
                parts.append(negative_log_likelihoods(rows, labels[at : at + len(rows)]))
    return np.concatenate(parts)


def theirs(python: str, path: Path, text: Path, *counts: int) -> np.ndarray:
    """Return the same of the peer."""
    side = Path(__file__).with_name("quality_peer.py")
    command = [python, str(side), str(path), str(text), *map(str, counts)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return np.array(json.loads(done.stdout))


def row(name: str, own: np.ndarray, peer: np.ndarray) -> str:
    """Return a line of the table."""
    ratio: Measured = mean_of(own - peer)
    return (
        f"| {name} | {len(own)} | {exp_of(mean_of(own))} | {exp_of(mean_of(peer))} "
        f"| {ratio.value:+.5f} ± {ratio.error:.5f} |"
    )


def main() -> None:
    """Print a line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("-f", "--file", type=Path, required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("-c", "--n-ctx", type=int, default=512)
    parser.add_argument("-t", "--threads", type=int, default=2)
    options = parser.parse_args()
    counts = (options.n_ctx, options.chunks, options.threads)
    text = options.file.read_text(encoding="utf-8")
    print("| model | tokens | edgeinfer | llama-cpp-python | ln ratio |")
    print("|:--|--:|--:|--:|--:|")
    for name in options.models:
        path = resolve(name)
        own = ours(path, text, *counts)
        print(row(path.name, own, theirs(options.peer_python, path, options.file, *counts)))


if __name__ == "__main__":
    main()
