# Beside llama: halves turn, part of a head may stay, one table of frequencies for short and one for
# long texts; the MLP's gate and up matrices are one, as are those of q, k and v.
"""Write the programs of architecture "phi3": Phi 3, 3.5, 4."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import fused_mlp, heads_of
from edgeinfer.arch.shared.decoder import decoder
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
    window = m.integer(".attention.sliding_window", 0, least=0)
    plan = [replace(heads_of(hp, il, rope), window=window) for il in range(hp.n_layers)]
    b = Builder("phi3", tensors)
    decoder(b, hp, plan, lambda b, x, il: fused_mlp(b, x, f"blk.{il}", hp.n_ff[il], "silu"))
    return b.finish(hp)
