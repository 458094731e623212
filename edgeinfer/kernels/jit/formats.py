"""List the formats the kernels multiply: how each is unpacked and how its dot product adds up."""

from dataclasses import dataclass

from edgeinfer.kernels.jit import unpack, unpack_codebook
from edgeinfer.kernels.jit.compiler import Kernel

# How a row's dot product is put together; csrc/formats.h spells the steps.
BLOCKS_32, SUPER_32, SUPER_16, RUNS_16, FLOATS = range(5)


@dataclass(frozen=True, slots=True)
class Packing:
    """One format: its unpacking, its law, and whether a minimum goes with its scales."""

    unpack: Kernel
    law: int
    has_min: bool = False


PACKINGS = {
    "F32": Packing(unpack.f32, FLOATS),
    "F16": Packing(unpack.f16, FLOATS),
    "BF16": Packing(unpack.bf16, FLOATS),
    "Q4_0": Packing(unpack.q4_0, BLOCKS_32),
    "Q4_1": Packing(unpack.q4_1, BLOCKS_32, has_min=True),
    "Q5_0": Packing(unpack.q5_0, BLOCKS_32),
    "Q5_1": Packing(unpack.q5_1, BLOCKS_32, has_min=True),
    "Q8_0": Packing(unpack.q8_0, BLOCKS_32),
    "IQ4_NL": Packing(unpack.iq4_nl, BLOCKS_32),
    "Q2_K": Packing(unpack.q2_k, SUPER_16, has_min=True),
    "Q3_K": Packing(unpack.q3_k, SUPER_16),
    "Q4_K": Packing(unpack.q4_k, SUPER_32, has_min=True),
    "Q5_K": Packing(unpack.q5_k, SUPER_32, has_min=True),
    "Q6_K": Packing(unpack.q6_k, SUPER_16),
    "IQ4_XS": Packing(unpack.iq4_xs, SUPER_32),
    "MXFP4": Packing(unpack_codebook.mxfp4, BLOCKS_32),
    "NVFP4": Packing(unpack_codebook.nvfp4, RUNS_16),
    "TQ1_0": Packing(unpack_codebook.tq1_0, SUPER_16),
    "TQ2_0": Packing(unpack_codebook.tq2_0, SUPER_16),
    "IQ2_XXS": Packing(unpack_codebook.iq2_xxs, SUPER_16),
    "IQ2_XS": Packing(unpack_codebook.iq2_xs, SUPER_16),
    "IQ2_S": Packing(unpack_codebook.iq2_s, SUPER_16),
    "IQ3_XXS": Packing(unpack_codebook.iq3_xxs, SUPER_16),
    "IQ3_S": Packing(unpack_codebook.iq3_s, SUPER_16),
    "IQ1_S": Packing(unpack_codebook.iq1_s, SUPER_16),
    "IQ1_M": Packing(unpack_codebook.iq1_m, SUPER_16),
}
