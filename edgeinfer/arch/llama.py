# The plain pre-norm transformer: RMS norm, grouped-query attention, rotary positions in
# interleaved pairs (converters permute q and k rows), SwiGLU. Llama 1 to 3, Mistral, SmolLM2;
# with experts, Mixtral.
"""Write the programs of architecture "llama": Llama 1 to 3, Mistral, SmolLM2, Mixtral."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import decoder, dense, sparse
from edgeinfer.arch.shared.experts import MAX_EXPERTS, read_experts
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    n_rot = rope_dims(m, hp.key_dim)
    if n_rot != hp.key_dim:
        raise m.error(".rope.dimension_count", f"found {n_rot} (need the head size {hp.key_dim})")
    rope = scaled_table(m, tensors, hp, n_rot)
    scale = m.number(".attention.scale", 0.0, least=0.0) or hp.key_dim**-0.5
    window = m.integer(".attention.sliding_window", 0, least=0)
    plan = [
        replace(heads_of(hp, il, rope), pairing="interleaved", scale=scale, window=window)
        for il in range(hp.n_layers)
    ]
    mlp = dense(hp, "silu")
    if m.integer(".expert_count", 0, least=0, most=MAX_EXPERTS):
        mlp = sparse(read_experts(m, tensors, hp), "silu")
    b = Builder("llama", tensors)
    decoder(b, hp, plan, mlp)
    return b.finish(hp)
