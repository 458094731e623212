# Beside llama: embeddings times sqrt(n_embd), norms after attention and MLP as well as before,
# per-head norms on q and k, GELU, and five windowed layers with their own RoPE base to one global.
"""Write the programs of architecture "gemma3": Gemma 3, text."""

from collections.abc import Mapping

from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.gemma import windowed_plan
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    style = Style(
        norm_after=True,
        embed_by=hp.n_embd**0.5,
        logits_cap=m.number(".final_logit_softcapping", 0.0, least=0.0),
    )
    b = Builder("gemma3", tensors)
    decoder(b, hp, windowed_plan(m, tensors, hp), dense(hp, "gelu_tanh"), style)
    return b.finish(hp)
