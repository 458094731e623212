# Beside llama: q and k of every fourth layer, or of those a key of ours names, do not turn.
"""Write the programs of architecture "smollm3": SmolLM 3."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import decoder, dense
from edgeinfer.arch.shared.hyper import layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    turned = layer_flags(m, ".attention.rope_pattern", hp.n_layers, period=4)
    plan = [
        replace(heads_of(hp, il, rope if turned[il] else None), pairing="interleaved")
        for il in range(hp.n_layers)
    ]
    b = Builder("smollm3", tensors)
    decoder(b, hp, plan, dense(hp, "silu"))
    return b.finish(hp)
