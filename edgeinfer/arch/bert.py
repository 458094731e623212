# Beside gpt2: tokens see all others, sums are normalized instead of what enters a part, GELU is the
# exact one, and no text is written. BERT, MiniLM, BGE, E5; RoBERTa and XLM-R, whose files hold the
# positions from the first one that is used.
"""Write the programs of architecture "bert": BERT, MiniLM, BGE, E5, RoBERTa, XLM-R, rerankers."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import plain
from edgeinfer.arch.shared.encoder import encoder
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS, is_encoder=True)
    plan = [heads_of(hp, il, None) for il in range(hp.n_layers)]
    b = Builder("bert", tensors)
    encoder(b, m, hp, plan, plain(hp, "gelu_erf"), positions=True)
    return b.finish(hp)
