# Beside qwen2: norms take the mean away, those of q and k, in some models, with weights for each
# head, and part of a head turns. Models without ffn_norm feed the MLP what attention reads.
"""Write the programs of architecture "stablelm": StableLM 2, 3B, Zephyr."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import QkNorm, heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
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
    qk_norm: QkNorm = "own" if "blk.0.attn_q_norm.weight" in tensors else "none"
    plan = [replace(heads_of(hp, il, rope), qk_norm=qk_norm) for il in range(hp.n_layers)]
    style = Style(layer_norm=True, parallel="blk.0.ffn_norm.weight" not in tensors)
    b = Builder("stablelm", tensors)
    decoder(b, hp, plan, dense(hp, "silu"), style)
    return b.finish(hp)
