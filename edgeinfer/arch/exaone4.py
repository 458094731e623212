# Beside olmo2: each head of q and k is normalized instead of the row. Where layers have windows,
# the global ones do not turn.
"""Write the programs of architecture "exaone4": EXAONE 4."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
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
    window = m.integer(".attention.sliding_window", 0, least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=4)
    plan = [
        replace(
            heads_of(hp, il, rope if windowed[il] or not window else None),
            qk_norm="heads",
            window=window if windowed[il] else 0,
        )
        for il in range(hp.n_layers)
    ]
    b = Builder("exaone4", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), Style(norm_before=False, norm_after=True))
    return b.finish(hp)
