"""Read the layers of Gemma 3: most see a window and turn with a RoPE base of their own."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import Heads, heads_of
from edgeinfer.arch.shared.hyper import Hyper, layer_flags
from edgeinfer.arch.shared.rotation import plain_table, rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.tensor import Tensor

N_LAYERS_27B = 62


def windowed_plan(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> list[Heads]:
    """Return the heads of each layer; raises ModelFormatError naming the key at fault."""
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
