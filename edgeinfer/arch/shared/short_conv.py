"""Write decoders of attention among short convolutions; what their MLP is, is an argument."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import heads_of
from edgeinfer.arch.shared.decoder import Mixed, Mlp, Style, decoder
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops_mixing import ConvMask
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
    mask: ConvMask = "causal" if hp.causal else "centered"
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))

    def convolve(b: Builder, x: Value, layer: str) -> Mixed:
        return [(_short_conv(b, x, layer, n_taps, mask), "shortconv.out_proj")]

    plan = [
        replace(heads_of(hp, il, rope), qk_norm="heads") if n_kv else convolve
        for il, n_kv in enumerate(hp.n_kv_heads)
    ]
    decoder(b, hp, plan, mlp, Style(output_norm="token_embd_norm"))  # the name it has in files


def _short_conv(b: Builder, x: Value, layer: str, n_taps: int, mask: ConvMask) -> Value:
    """Gate a convolution on both sides; return its output, before `out_proj`."""
    n = x.width
    before, after, u = b.split(b.linear(x, f"{layer}.shortconv.in_proj", 3 * n), n, n, n)
    u = b.conv1d(b.mul(before, u), f"{layer}.shortconv.conv", n_taps, mask=mask)
    return b.mul(after, u)
