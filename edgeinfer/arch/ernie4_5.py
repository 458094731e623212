# Beside llama: no windows, no experts. Checkpoints have heads in pairs already, whose rows stay
# where they are, and biases on everything or on nothing.
"""Write the programs of architecture "ernie4_5": ERNIE 4.5 without experts."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import decoder, dense
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    plan = [replace(heads_of(hp, il, rope), pairing="interleaved") for il in range(hp.n_layers)]
    b = Builder("ernie4_5", tensors)
    decoder(b, hp, plan, dense(hp, "silu"))
    return b.finish(hp)
