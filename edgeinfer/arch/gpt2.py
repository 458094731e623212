# Beside starcoder2: positions are learned and added to the tokens' embeddings, nothing turns, every
# head has keys of its own.
"""Write the programs of architecture "gpt2": GPT-2, DistilGPT-2 and their like."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, plain
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS)
    plan = [heads_of(hp, il, None) for il in range(hp.n_layers)]
    b = Builder("gpt2", tensors)
    decoder(b, hp, plan, plain(hp, "gelu_tanh"), Style(positions=True, layer_norm=True))
    return b.finish(hp)
