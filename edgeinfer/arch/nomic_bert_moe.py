# Beside nomic-bert: the MLP has no gate, and in every other layer it is experts whose weights are
# left as the router gives them.
"""Write the programs of architecture "nomic-bert-moe": Nomic Embed 2."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of, plain_mlp, plain_moe_block
from edgeinfer.arch.shared.encoder import encoder
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS, is_encoder=True)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    plan = [heads_of(hp, il, rope) for il in range(hp.n_layers)]
    every = m.integer(".moe_every_n_layers", least=2)
    is_normed = m.flag(".expert_weights_norm", False)
    experts = replace(read_experts(m, tensors, hp), norm=is_normed)

    def mlp(b: Builder, x: Value, il: int) -> Value:
        if il % every == 1:
            return plain_moe_block(b, x, f"blk.{il}", experts, "gelu_erf")
        return plain_mlp(b, x, f"blk.{il}", hp.n_ff[il], "gelu_erf")

    b = Builder("nomic-bert-moe", tensors)
    encoder(b, m, hp, plan, mlp)
    return b.finish(hp)
