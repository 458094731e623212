# Beside llama: factors on embeddings, on what each layer adds, on attention and on the logits.
"""Write the programs of architecture "granite"."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    scale = m.number(".attention.scale", 0.0, least=0.0) or hp.key_dim**-0.5
    plan = [
        replace(heads_of(hp, il, rope), pairing="interleaved", scale=scale)
        for il in range(hp.n_layers)
    ]
    style = Style(
        embed_by=m.number(".embedding_scale", 0.0, least=0.0) or 1.0,
        residual_by=m.number(".residual_scale", 0.0, least=0.0) or 1.0,
        logits_by=1.0 / m.number(".logit_scale", above=0.0),
    )
    b = Builder("granite", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), style)
    return b.finish(hp)
