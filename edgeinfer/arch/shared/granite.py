"""Write the decoders of Granite: factors on embeddings, attention, what layers add, and logits.

What mixes positions in layers that do not attend is an argument.
"""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import Experts, heads_of, moe_block, shared_mlp
from edgeinfer.arch.shared.decoder import Mixer, Mlp, Style, decoder, dense
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH, Hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor


def granite_decoder(
    b: Builder,
    m: Metadata,
    tensors: Mapping[str, Tensor],
    hp: Hyper,
    mlp: Mlp,
    mixer: Mixer | None = None,
) -> None:
    """Write a decoder; layers without KV heads have the mixer. A factor of 0 is none.

    Raises ModelFormatError naming the key at fault.
    """
    turns = m.flag(".rope.scaling.finetuned", True)  # the name under which files have this switch
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim)) if turns else None
    scale = _factor(m, ".attention.scale", hp.key_dim**-0.5)
    plan = [
        replace(heads_of(hp, il, rope), pairing="interleaved", scale=scale)
        if n_kv or mixer is None
        else mixer
        for il, n_kv in enumerate(hp.n_kv_heads)
    ]
    style = Style(
        embed_by=_factor(m, ".embedding_scale"),
        residual_by=_factor(m, ".residual_scale"),
        logits_by=1.0 / _factor(m, ".logit_scale"),
    )
    decoder(b, hp, plan, mlp, style)


def granite_mlp(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Mlp:
    """Return the MLP: one, or where the file has experts these and one more that all rows meet."""
    if not m.integer(".expert_count", 0, least=0):
        return dense(hp, "silu")
    experts = read_experts(m, tensors, hp)
    n_shared = m.integer(".expert_shared_feed_forward_length", 0, least=0, most=MAX_WIDTH)
    return lambda b, x, il: _experts(b, x, f"blk.{il}", experts, n_shared)


def _experts(b: Builder, x: Value, layer: str, experts: Experts, n_shared: int) -> Value:
    chosen = moe_block(b, x, layer, experts, "silu")
    return b.add(chosen, shared_mlp(b, x, layer, n_shared, "silu")) if n_shared else chosen


def _factor(m: Metadata, key: str, default: float = 1.0) -> float:
    return m.number(key, 0.0, least=0.0) or default
