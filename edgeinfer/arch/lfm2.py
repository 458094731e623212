# Beside gemma3: no windows, no factor on the embeddings, plain pre-norms, SwiGLU, and most layers
# do not attend: they gate a short convolution over their own past, and keep its inputs as state.
"""Write the programs of architecture "lfm2": LFM2; those of embeddings see both ways."""

from collections.abc import Mapping

from edgeinfer.arch.shared.decoder import dense
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.short_conv import conv_decoder
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True)
    b = Builder("lfm2", tensors)
    conv_decoder(b, m, tensors, hp, dense(hp, "silu"))
    return b.finish(hp)
