# Beside nomic-bert: parts read normalized rows, but for the first; most layers see a window to both
# sides and turn with a base of their own, and gate and up are one matrix.
"""Write the programs of architecture "modern-bert": ModernBERT, GTE and Granite embeddings."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import Heads, fused_mlp, heads_of, symmetric
from edgeinfer.arch.shared.decoder import Style, decoder
from edgeinfer.arch.shared.hyper import LAYER_EPS, Hyper, layer_flags, read_hyper
from edgeinfer.arch.shared.rotation import plain_table, rope_dims, scaled_table
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops import Fn
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

ACTIVATION = ".hidden_activation"
ACTIVATIONS: dict[str, Fn] = {"gelu": "gelu_erf", "silu": "silu"}


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS, is_encoder=True, scores_of="mean")
    name = m.text(ACTIVATION, "gelu")
    if name not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"{m.where}: key '{m.full_key(ACTIVATION)}': found {name!r} (need one of "
            f"{', '.join(ACTIVATIONS)})"
        )
    style = Style(layer_norm=True, embed_norm=True, first_norm=False, head_fn="gelu_erf")
    b = Builder("modern-bert", tensors)
    fn = ACTIVATIONS[name]
    decoder(
        b,
        hp,
        _plan(m, tensors, hp),
        lambda b, x, il: fused_mlp(b, x, f"blk.{il}", hp.n_ff[il], fn),
        style,
    )
    return b.finish(hp)


def _plan(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> list[Heads]:
    n_rot = rope_dims(m, hp.key_dim)
    window = m.integer(".attention.sliding_window", least=0)
    key = ".attention.sliding_window_pattern"
    windowed = layer_flags(m, key, hp.n_layers, period=3, is_last_global=False)
    rope_global = scaled_table(m, tensors, hp, n_rot)
    rope_windowed = plain_table(m, ".rope.freq_base_swa", 10000.0, n_rot, name="swa")
    return [
        symmetric(replace(heads_of(hp, il, rope_windowed), window=window))
        if windowed[il]
        else heads_of(hp, il, rope_global)
        for il in range(hp.n_layers)
    ]
