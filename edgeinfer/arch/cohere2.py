# Beside llama: norms take the mean away, attention and MLP read the same one, three of four layers
# have a window, those alone turn, and logits have a factor.
"""Write the programs of architecture "cohere2": Command R7B, Command A."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.hyper import LAYER_EPS, layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    window = m.integer(".attention.sliding_window", least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=4)
    plan = [
        replace(
            heads_of(hp, il, rope if windowed[il] else None),
            pairing="interleaved",
            window=window if windowed[il] else 0,
        )
        for il in range(hp.n_layers)
    ]
    style = Style(layer_norm=True, parallel=True, logits_by=m.number(".logit_scale", above=0.0))
    b = Builder("cohere2", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), style)
    return b.finish(hp)
