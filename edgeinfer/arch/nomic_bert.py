# Beside bert: heads turn instead of learned positions, and the MLP has a gate.
"""Write the programs of architecture "nomic-bert": Nomic Embed 1, 1.5."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import dense
from edgeinfer.arch.shared.encoder import encoder
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS, is_encoder=True)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    plan = [heads_of(hp, il, rope) for il in range(hp.n_layers)]
    b = Builder("nomic-bert", tensors)
    encoder(b, m, hp, plan, dense(hp, "silu"))
    return b.finish(hp)
