# Beside qwen35: experts for the MLP, and one more that all rows meet, as far as its gate lets them.
"""Write the programs of architecture "qwen35moe": Qwen 3.5 with experts, text."""

from collections.abc import Mapping

from edgeinfer.arch.shared.delta_net import delta_decoder, gated_experts
from edgeinfer.arch.shared.experts import expert_width
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True, n_ff=expert_width(m))
    b = Builder("qwen35moe", tensors)
    delta_decoder(b, m, tensors, hp, gated_experts(m, tensors, hp))
    return b.finish(hp)
