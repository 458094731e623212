# Beside gemma3: every other layer has a window, all turn alike, no norms on q and k, and soft caps
# on the logits of attention and of the model.
"""Write the programs of architecture "gemma2": Gemma 2."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Style, decoder, dense
from edgeinfer.arch.shared.hyper import layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

N_LAYERS_27B = 46


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    window = m.integer(".attention.sliding_window", 4096, least=0)
    windowed = layer_flags(m, ".attention.sliding_window_pattern", hp.n_layers, period=2)
    # The 27B alone scales by n_embd / n_heads, and no key says so.
    dim = hp.n_embd / hp.n_heads[0] if hp.n_layers == N_LAYERS_27B else hp.key_dim
    softcap = m.number(".attn_logit_softcapping", 50.0, least=0.0)
    plan = [
        replace(
            heads_of(hp, il, rope),
            scale=dim**-0.5,
            softcap=softcap,
            window=window if windowed[il] else 0,
        )
        for il in range(hp.n_layers)
    ]
    style = Style(
        norm_after=True,
        embed_by=hp.n_embd**0.5,
        logits_cap=m.number(".final_logit_softcapping", 30.0, least=0.0),
    )
    b = Builder("gemma2", tensors)
    decoder(b, hp, plan, dense(hp, "gelu_tanh"), style)
    return b.finish(hp)
