# Beside qwen3moe: no norms on q and k but a bias on each matrix, every other layer has a window,
# each head a sink, the router's softmax comes after the choice, and the gate is clamped.
"""Write the programs of architecture "gpt-oss": gpt-oss, its blocks of MXFP4 as they are."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, sparse
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    # This family alone keeps the ends of YaRN's ramp as they are, and no key says so.
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim), truncate=False)
    window = m.integer(".attention.sliding_window", least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=2)
    plan = [
        replace(heads_of(hp, il, rope), sinks=True, window=window if windowed[il] else 0)
        for il in range(hp.n_layers)
    ]
    experts = replace(read_experts(m, tensors, hp, "softmax_topk"), norm=False)
    b = Builder("gpt-oss", tensors)
    style = Style(ffn_norm="post_attention_norm")
    decoder(b, hp, plan, sparse(experts, "swiglu_oai"), style)
    return b.finish(hp)
