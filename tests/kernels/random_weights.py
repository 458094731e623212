"""Make tensors of any format whose values are random, centred and of a given size."""

from typing import Any

import numpy as np

from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels import block_scales
from tests.kernels.law import FLOAT_FORMATS

# What the min must be, in units of the scale, for the codes to be centred: their middle.
MINS = {"Q4_1": -7.5, "Q5_1": -15.5, "Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}

Spec = tuple[str, tuple[int, ...], bytes]  # as tests/gguf_writer.py takes it


def with_format(array: np.ndarray, name: str, seed: int = 0) -> Spec:
    """Return a tensor of the array's shape: its own values in a float format, else random ones of
    the same standard deviation (there is no encoder to ask)."""
    if name == "BF16":
        bits = array.astype(np.float32).view(np.uint32) >> 16
        return name, array.shape, bits.astype(np.uint16).tobytes()
    if name in FLOAT_FORMATS:
        return name, array.shape, array.astype(np.float16 if name == "F16" else "f4").tobytes()
    blocks = random_blocks(np.random.default_rng(seed), name, array.size, 1.0)
    tensor = Tensor("w", array.shape, FORMATS[name], blocks.ravel())
    size = float(array.std() / decode(tensor).std())
    return (
        name,
        array.shape,
        random_blocks(np.random.default_rng(seed), name, array.size, size).tobytes(),
    )


def random_blocks(rng: np.random.Generator, name: str, n_values: int, scale: float) -> np.ndarray:
    """Random codes and sub-scales; block scales (the law's w) within a factor of two of `scale`."""
    fmt = FORMATS[name]
    n_blocks = n_values // fmt.block_size
    blocks = rng.integers(0, 256, (n_blocks, fmt.block_bytes), dtype=np.uint8)
    if name == "TQ2_0":  # a code of 3 is none of its three
        codes = blocks[:, :64]
        codes ^= codes & codes << 1 & 0xAA
    d = scale * np.exp2(rng.uniform(-1, 1, n_blocks))
    block_scales.put(blocks, name, d, d * MINS.get(name, 0.0))
    return blocks


def all_matrices(arrays: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Give the matrices of a model these formats in turn; vectors stay as they are."""
    made: dict[str, Any] = {}
    turn = 0
    for name, array in arrays.items():
        if array.ndim > 1:
            made[name] = with_format(array, names[turn % len(names)], seed=turn)
            turn += 1
        else:
            made[name] = array
    return made
