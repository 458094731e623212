"""Measure what each KV type takes and costs: bytes of a token, and KL from the float32 model.

    python -m benchmarks.kv_types            # SmolLM2 and Gemma 3, all types
    python -m benchmarks.kv_types --only smollm2 --kv-type f16 q4_0 --activations fine

The texts, and what a float32 forward of the same weights by transformers finds likely to follow
them, are files of the reference data; the KL is that of tests/kernels/kl.py, the mean over the
positions of a text, then over the texts. It is the same on every machine.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import ROOT
from edgeinfer.arch import build_program
from edgeinfer.kernels.backend import ACTIVATIONS, KV_TYPES, PAGE_LEN
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.resolve import resolve
from tests.kernels.kl import Case, kl32, limits_for, read_cases, run_case

MODELS = {"smollm2": "smollm2", "gemma3": "gemma3-270m"}  # the reference's name, the catalogue's


def measure(
    path: Path, cases: Sequence[Case], kv_type: str, activations: str, n_threads: int
) -> tuple[int, float]:
    """Return the bytes of a token's keys and values, and the mean KL."""
    n_ctx = max(len(case.tokens) for case in cases)
    limits = limits_for(n_ctx, kv_type=kv_type, activations=activations, n_threads=n_threads)
    with open_gguf(path) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        executable = BACKEND.compile(program, file.tensors, limits)
        found = [np.mean(kl32(run_case(executable, case), case)) for case in cases]
        n_bytes = executable.page_bytes // PAGE_LEN
        executable.close()
    return n_bytes, float(np.mean(found))


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--kv-type", nargs="*", default=KV_TYPES, choices=KV_TYPES)
    parser.add_argument("--activations", default="auto", choices=ACTIVATIONS)
    parser.add_argument("--reference", type=Path, default=ROOT.parent / "shared" / "reference")
    parser.add_argument("--longest", type=int, help="tokens of the longest text that is read")
    parser.add_argument("-t", "--threads", type=int, default=0)
    options = parser.parse_args()
    for name in options.only:
        cases = [
            case
            for case in read_cases(options.reference / f"{name}.json")
            if options.longest is None or len(case.tokens) <= options.longest
        ]
        peer = np.mean([case.raw["peer_kl32_mean"] for case in cases])
        print(f"\n{name}, {len(cases)} texts; llama.cpp with f16: {peer:.5f} nats\n")
        print("| KV | bytes of a token | KL, nats |\n|:---|----:|-----:|")
        for kv_type in options.kv_type:
            how = (kv_type, options.activations, options.threads)
            n_bytes, kl = measure(resolve(MODELS[name]), cases, *how)
            print(f"| {kv_type} | {n_bytes} | {kl:.5f} |", flush=True)


if __name__ == "__main__":
    main()
