# Beside lfm2: behind the first layers experts for the MLP, chosen by the sigmoid of their logits
# and a bias that has no part in their weights.
"""Write the programs of architecture "lfm2moe": LFM2 with experts."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.decoder import dense, sparse
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.short_conv import conv_decoder
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

NORM_EPS = 1e-6


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True)
    experts = replace(read_experts(m, tensors, hp, "sigmoid"), norm_eps=NORM_EPS)
    n_dense = m.integer(".leading_dense_block_count", 0, least=0, most=hp.n_layers)
    b = Builder("lfm2moe", tensors)
    first, rest = dense(hp, "silu"), sparse(experts, "silu")
    conv_decoder(
        b, m, tensors, hp, lambda b, x, il: first(b, x, il) if il < n_dense else rest(b, x, il)
    )
    return b.finish(hp)
