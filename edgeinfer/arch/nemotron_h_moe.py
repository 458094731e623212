# Beside nemotron_h: experts for the MLP, chosen by the sigmoid of their logits and a bias, and one
# more that all rows meet; none has a gate.
"""Write the programs of architecture "nemotron_h_moe": Nemotron 3 Nano."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import plain_moe_block
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH
from edgeinfer.arch.shared.nemotron import nemotron_decoder, read_nemotron
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor

NORM_EPS = 1e-20


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_nemotron(m, tensors, n_ctx)
    m.integer(".expert_group_count", 1, least=0, most=1)
    experts = replace(read_experts(m, tensors, hp, "sigmoid"), norm_eps=NORM_EPS)
    n_shared = m.integer(".expert_shared_feed_forward_length", least=1, most=MAX_WIDTH)

    def mlp(b: Builder, x: Value, il: int) -> Value:
        chosen = plain_moe_block(b, x, f"blk.{il}", experts, "relu2")
        shared = b.act(b.linear(x, f"blk.{il}.ffn_up_shexp", n_shared), "relu2")
        return b.add(chosen, b.linear(shared, f"blk.{il}.ffn_down_shexp", x.width))

    b = Builder("nemotron_h_moe", tensors)
    nemotron_decoder(b, m, hp, mlp)
    return b.finish(hp)
