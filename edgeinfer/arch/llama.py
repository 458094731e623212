# The plain pre-norm transformer: RMS norm, grouped-query attention, rotary positions in
# interleaved pairs (converters permute q and k rows), SwiGLU. Llama 1 to 3, Mistral, SmolLM2;
# with experts, Mixtral.
"""Write the programs of architecture "llama"."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import Experts, Heads, gated_mlp, gqa_block, head, moe_block
from edgeinfer.arch.shared.hyper import MAX_WIDTH, Hyper, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

MAX_EXPERTS = 4096


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    n_rot = rope_dims(m, hp.key_dim)
    if n_rot != hp.key_dim:
        raise m.error(".rope.dimension_count", f"found {n_rot} (need the head size {hp.key_dim})")
    rope = scaled_table(m, tensors, hp, n_rot)
    scale = m.number(".attention.scale", 0.0, least=0.0) or hp.key_dim**-0.5
    experts = _experts(m, tensors, hp)
    b = Builder("llama", tensors)

    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    for il in range(hp.n_layers):
        layer = f"blk.{il}"
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        heads = Heads(
            n_heads=hp.n_heads[il],
            n_kv_heads=hp.n_kv_heads[il],
            key_dim=hp.key_dim,
            value_dim=hp.value_dim,
            rope=rope,
            pairing="interleaved",
            scale=scale,
        )
        o = gqa_block(b, h, layer, heads)
        if il == hp.n_layers - 1:
            o, x = b.rows(o), b.rows(x)
        x = b.add(x, b.linear(o, f"{layer}.attn_output", hp.n_embd))
        h = b.rms_norm(x, f"{layer}.ffn_norm", hp.eps)
        if experts is None:
            m_out = gated_mlp(b, h, layer, hp.n_ff[il], "silu")
        else:
            m_out = moe_block(b, h, layer, experts, "silu")
        x = b.add(x, m_out)
    head(b, b.rms_norm(x, "output_norm", hp.eps), hp.n_vocab)
    return b.finish(hp)


def _experts(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Experts | None:
    n_experts = m.integer(".expert_count", 0, least=0, most=MAX_EXPERTS)
    if n_experts == 0:
        return None
    if "blk.0.ffn_gate.0.weight" in tensors:
        raise UnsupportedModelError(
            f"{m.where}: tensor 'blk.0.ffn_gate.0.weight': found one tensor an expert "
            "(need blk.0.ffn_gate_exps.weight with all): convert the model again"
        )
    return Experts(
        n_experts=n_experts,
        n_used=m.integer(".expert_used_count", least=1, most=n_experts),
        n_ff=m.integer(".expert_feed_forward_length", hp.n_ff[0], least=1, most=MAX_WIDTH),
        by=m.number(".expert_weights_scale", 0.0, least=0.0) or 1.0,
    )
