# Beside qwen2: norms take the mean away, everything has a bias, and the MLP has no gate.
"""Write the programs of architecture "starcoder2": StarCoder 2."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, plain
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    window = m.integer(".attention.sliding_window", 0, least=0)
    plan = [replace(heads_of(hp, il, rope), window=window) for il in range(hp.n_layers)]
    b = Builder("starcoder2", tensors)
    decoder(b, hp, plan, plain(hp, "gelu_tanh"), Style(layer_norm=True))
    return b.finish(hp)
