# Beside llama: queries grow with the logarithm of their position (Ministral 3).
"""Write the programs of architecture "mistral3": Ministral 3."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import decoder, dense
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
    beta = m.number(".attention.temperature_scale", 0.0, least=0.0)
    length = m.integer(".rope.scaling.original_context_length", hp.n_ctx_train, least=1)
    plan = [
        replace(
            heads_of(hp, il, rope),
            pairing="interleaved",
            temperature=(beta, length) if beta else None,
        )
        for il in range(hp.n_layers)
    ]
    b = Builder("mistral3", tensors)
    decoder(b, hp, plan, dense(hp, "silu"))
    return b.finish(hp)
