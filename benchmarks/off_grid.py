"""Move the weights of a model off the grid they were quantized on, as a source to quantize.

    edgeinfer quantize model.gguf model-f16.gguf F16 --allow-requantize
    python -m benchmarks.off_grid model-f16.gguf source.gguf

A quantizer that finds the old grid again loses nothing, which no other source allows. Each weight
moves at random, evenly, by at most half a step of 4 bits over its block of 32.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.roles import may_be_quantized


def main() -> None:
    """Copy the file and change its matrices in place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path, help="a file in F16, one part")
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=7, help="of the moves")
    args = parser.parse_args()
    shutil.copy(args.source, args.target)
    chance = np.random.default_rng(args.seed)
    with open_gguf(args.source) as file, args.target.open("r+b") as target:
        for (start, _), tensor in zip(file.parts[0].extents, file.tensors.values(), strict=True):
            if not may_be_quantized(tensor.name, tensor.shape):
                continue
            blocks = tensor.data.view(np.float16).astype(np.float32).reshape(-1, 32)
            step = np.ptp(blocks, axis=1, keepdims=True) / 15
            blocks += step * chance.uniform(-0.5, 0.5, blocks.shape).astype(np.float32)
            target.seek(start)
            target.write(blocks.astype(np.float16).tobytes())


if __name__ == "__main__":
    main()
