# Beside qwen35: experts for the MLP, and one more that all rows meet, as far as its gate lets them.
"""Write the programs of architecture "qwen35moe": Qwen 3.5 with experts, text."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import Experts, moe_block, shared_mlp
from edgeinfer.arch.shared.delta_net import delta_decoder
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH, read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    n_ff = m.integer(".expert_feed_forward_length", least=1, most=MAX_WIDTH)
    n_shared = m.integer(".expert_shared_feed_forward_length", n_ff, least=1, most=MAX_WIDTH)
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True, n_ff=n_ff)
    experts = read_experts(m, tensors, hp)
    b = Builder("qwen35moe", tensors)
    delta_decoder(b, m, tensors, hp, lambda b, x, il: _mlp(b, x, f"blk.{il}", experts, n_shared))
    return b.finish(hp)


def _mlp(b: Builder, x: Value, layer: str, experts: Experts, n_shared: int) -> Value:
    chosen = moe_block(b, x, layer, experts, "silu")
    shared = shared_mlp(b, x, layer, n_shared, "silu")
    gate = b.linear(x, f"{layer}.ffn_gate_inp_shexp", 1)
    return b.add(chosen, b.gated(gate, shared, "sigmoid"))
