# Beside llama: norms stand after attention and MLP instead of before, all of q and of k is
# normalized as one row, and halves turn.
"""Write the programs of architecture "olmo2": OLMo 2."""

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
    plan = [replace(heads_of(hp, il, rope), qk_norm="rows") for il in range(hp.n_layers)]
    b = Builder("olmo2", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), Style(norm_before=False, norm_after=True))
    return b.finish(hp)
