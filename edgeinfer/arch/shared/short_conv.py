"""Write decoders of attention among short convolutions; what their MLP is, is an argument."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import gqa_block, head, heads_of, selects_rows
from edgeinfer.arch.shared.decoder import Mlp
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor

MOST_TAPS = 64


def conv_decoder(
    b: Builder, m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper, mlp: Mlp
) -> None:
    """Write a decoder whose layers attend or convolve, then apply an MLP, each added to its input.

    Raises ModelFormatError naming the key at fault.
    """
    n_taps = m.integer(".shortconv.l_cache", least=2, most=MOST_TAPS)
    if not m.flag(".attention.causal", True):
        raise UnsupportedModelError(
            f"{m.where}: key '{m.full_key('.attention.causal')}': found false (need true): "
            "convolutions that look ahead are not supported"
        )
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    for il in range(hp.n_layers):
        layer = f"blk.{il}"
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        if hp.n_kv_heads[il]:
            heads = replace(heads_of(hp, il, rope), qk_norm="heads")
            o, name = gqa_block(b, h, layer, heads), f"{layer}.attn_output"
        else:
            o, name = _short_conv(b, h, layer, n_taps), f"{layer}.shortconv.out_proj"
        if il == hp.n_layers - 1 and selects_rows(hp):
            o, x = b.rows(o), b.rows(x)
        x = b.add(x, b.linear(o, name, hp.n_embd))
        x = b.add(x, mlp(b, b.rms_norm(x, f"{layer}.ffn_norm", hp.eps), il))
    head(b, b.rms_norm(x, "token_embd_norm", hp.eps), hp)  # the name it has in files


def _short_conv(b: Builder, x: Value, layer: str, n_taps: int) -> Value:
    """Gate a convolution on both sides; return its output, before `out_proj`."""
    n = x.width
    before, after, u = b.split(b.linear(x, f"{layer}.shortconv.in_proj", 3 * n), n, n, n)
    return b.mul(after, b.conv1d(b.mul(before, u), f"{layer}.shortconv.conv", n_taps))
