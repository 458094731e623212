# Beside llama: embeddings times sqrt(n_embd), norms after attention and MLP as well as before,
# per-head norms on q and k, GELU, and five windowed layers with their own RoPE base to one global.
"""Write the programs of architecture "gemma3" (text)."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import Heads, gated_mlp, gqa_block, head
from edgeinfer.arch.shared.hyper import Hyper, layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import plain_table, rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

N_LAYERS_27B = 62


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    plan = _heads(m, tensors, hp)
    cap = m.number(".final_logit_softcapping", 0.0, least=0.0)
    b = Builder("gemma3", tensors)

    x = b.embed("token_embd", hp.n_vocab, hp.n_embd, scale=hp.n_embd**0.5)
    for il, heads in enumerate(plan):
        layer = f"blk.{il}"
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        o = gqa_block(b, h, layer, heads)
        if il == hp.n_layers - 1:
            o, x = b.rows(o), b.rows(x)
        o = b.linear(o, f"{layer}.attn_output", hp.n_embd)
        x = b.add(x, b.rms_norm(o, f"{layer}.post_attention_norm", hp.eps))
        h = b.rms_norm(x, f"{layer}.ffn_norm", hp.eps)
        h = gated_mlp(b, h, layer, hp.n_ff[il], "gelu_tanh")
        x = b.add(x, b.rms_norm(h, f"{layer}.post_ffw_norm", hp.eps))
    head(b, b.rms_norm(x, "output_norm", hp.eps), hp.n_vocab, cap=cap)
    return b.finish(hp)


def _heads(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> list[Heads]:
    n_rot = rope_dims(m, hp.key_dim)
    window = m.integer(".attention.sliding_window", 0, least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=6)
    rope_global = scaled_table(m, tensors, hp, n_rot)
    rope_windowed = plain_table(m, ".rope.freq_base_swa", 10000.0, n_rot, name="swa")
    # Gemma 3 27B alone scales by n_embd / n_heads, and no key says so.
    dim = hp.n_embd / hp.n_heads[0] if hp.n_layers == N_LAYERS_27B else hp.key_dim
    return [
        Heads(
            n_heads=hp.n_heads[il],
            n_kv_heads=hp.n_kv_heads[il],
            key_dim=hp.key_dim,
            value_dim=hp.value_dim,
            rope=rope_windowed if windowed[il] else rope_global,
            pairing="half",
            scale=dim**-0.5,
            softcap=m.number(".attn_logit_softcapping", 0.0, least=0.0),
            window=window if windowed[il] else 0,
            qk_norm_eps=hp.eps,
        )
        for il in range(hp.n_layers)
    ]
