# Beside gemma3: tokens see all others, in windowed layers half a window to both sides, and what is
# pooled may go through two more matrices.
"""Write the programs of architecture "gemma-embedding": EmbeddingGemma."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import symmetric
from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.gemma import windowed_plan
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_encoder=True)
    plan = [symmetric(heads) for heads in windowed_plan(m, tensors, hp)]
    b = Builder("gemma-embedding", tensors)
    style = Style(norm_after=True, embed_by=hp.n_embd**0.5)
    decoder(b, hp, plan, dense(hp, "gelu_tanh"), style)
    return b.finish(hp)
