# Beside qwen35moe: neighbouring value heads share a key head; one matrix gives what a head forgets
# and learns; older files have one for queries, keys, values and gates, key head by key head.
"""Write the programs of architecture "qwen3next": Qwen 3 Next, Qwen 3 Coder Next."""

from collections.abc import Mapping

from edgeinfer.arch.shared.delta_net import GROUPED, delta_decoder, gated_experts
from edgeinfer.arch.shared.experts import expert_width
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True, n_ff=expert_width(m))
    b = Builder("qwen3next", tensors)
    delta_decoder(b, m, tensors, hp, gated_experts(m, tensors, hp), form=GROUPED)
    return b.finish(hp)
