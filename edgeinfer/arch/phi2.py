# Beside starcoder2: attention and MLP read the same norm, and part of a head turns.
"""Write the programs of architecture "phi2": Phi 1, 1.5, 2."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, plain
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    plan = [heads_of(hp, il, rope) for il in range(hp.n_layers)]
    b = Builder("phi2", tensors)
    decoder(b, hp, plan, plain(hp, "gelu_tanh"), Style(layer_norm=True, parallel=True))
    return b.finish(hp)
