# Beside lfm2: the layers that do not attend are gated delta-nets, behind a short convolution over
# their queries, keys and values; those that do gate what they found; part of each head turns.
"""Write the programs of architecture "qwen35": Qwen 3.5, text."""

from collections.abc import Mapping

from edgeinfer.arch.shared.decoder import dense
from edgeinfer.arch.shared.delta_net import delta_decoder
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True)
    b = Builder("qwen35", tensors)
    delta_decoder(b, m, tensors, hp, dense(hp, "silu"))
    return b.finish(hp)
