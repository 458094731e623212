# Beside llama: norms stand after attention and MLP instead of before, all of q and of k is
# normalized as one row, and halves turn. OLMo 3 has windows in three of four layers, whose heads
# turn without the scaling of the others.
"""Write the programs of architecture "olmo2": OLMo 2, 3."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.hyper import layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import plain_table, rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    n_rot = rope_dims(m, hp.key_dim)
    whole = scaled_table(m, tensors, hp, n_rot)
    local = plain_table(m, ".rope.freq_base", 10000.0, n_rot, name="swa")
    window = m.integer(".attention.sliding_window", 0, least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=4)
    plan = [
        replace(
            heads_of(hp, il, local if window and windowed[il] else whole),
            qk_norm="rows",
            window=window if windowed[il] else 0,
        )
        for il in range(hp.n_layers)
    ]
    b = Builder("olmo2", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), Style(norm_before=False, norm_after=True))
    return b.finish(hp)
