# Beside llama: biases on q, k and v, and RoPE turns the two halves of a head.
"""Write the programs of architecture "qwen2": Qwen 2, 2.5."""

from collections.abc import Mapping

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
    b = Builder("qwen2", tensors)
    decoder(b, hp, [heads_of(hp, il, rope) for il in range(hp.n_layers)], dense(hp, "silu"))
    return b.finish(hp)
