# Beside llama: embeddings times sqrt(n_embd), norms after attention and MLP as well as before,
# per-head norms on q and k, GELU, and five windowed layers with their own RoPE base to one global.
"""Write the programs of architecture "gemma3" (text)."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import Heads, heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
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
    style = Style(
        norm_after=True,
        embed_by=hp.n_embd**0.5,
        logits_cap=m.number(".final_logit_softcapping", 0.0, least=0.0),
    )
    b = Builder("gemma3", tensors)
    decoder(b, hp, _plan(m, tensors, hp), dense(hp, "gelu_tanh"), style)
    return b.finish(hp)


def _plan(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> list[Heads]:
    n_rot = rope_dims(m, hp.key_dim)
    window = m.integer(".attention.sliding_window", 0, least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=6)
    rope_global = scaled_table(m, tensors, hp, n_rot)
    rope_windowed = plain_table(m, ".rope.freq_base_swa", 10000.0, n_rot, name="swa")
    # Gemma 3 27B alone scales by n_embd / n_heads, and no key says so.
    dim = hp.n_embd / hp.n_heads[0] if hp.n_layers == N_LAYERS_27B else hp.key_dim
    softcap = m.number(".attn_logit_softcapping", 0.0, least=0.0)
    return [
        replace(
            heads_of(hp, il, rope_windowed if windowed[il] else rope_global),
            scale=dim**-0.5,
            softcap=softcap,
            window=window if windowed[il] else 0,
            qk_norm="heads",
        )
        for il in range(hp.n_layers)
    ]
