# Beside gemma3: no windows, no factor on the embeddings, plain pre-norms, SwiGLU, and most layers
# do not attend: they gate a short convolution over their own past, and keep its inputs as state.
"""Write the programs of architecture "lfm2"."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import gated_mlp, gqa_block, head, heads_of
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor

MOST_TAPS = 64


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True)
    n_taps = m.integer(".shortconv.l_cache", least=2, most=MOST_TAPS)
    if not m.flag(".attention.causal", True):
        raise UnsupportedModelError(
            f"{m.where}: key '{m.full_key('.attention.causal')}': found false (need true): "
            "convolutions that look ahead are not supported"
        )
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    b = Builder("lfm2", tensors)

    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    for il in range(hp.n_layers):
        layer = f"blk.{il}"
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        if hp.n_kv_heads[il]:
            heads = replace(heads_of(hp, il, rope), qk_norm="heads")
            o, name = gqa_block(b, h, layer, heads), f"{layer}.attn_output"
        else:
            o, name = _short_conv(b, h, layer, n_taps), f"{layer}.shortconv.out_proj"
        if il == hp.n_layers - 1:
            o, x = b.rows(o), b.rows(x)
        x = b.add(x, b.linear(o, name, hp.n_embd))
        h = b.rms_norm(x, f"{layer}.ffn_norm", hp.eps)
        x = b.add(x, gated_mlp(b, h, layer, hp.n_ff[il], "silu"))
    head(b, b.rms_norm(x, "token_embd_norm", hp.eps), hp.n_vocab)  # the name it has in files
    return b.finish(hp)


def _short_conv(b: Builder, x: Value, layer: str, n_taps: int) -> Value:
    """Gate a convolution on both sides; return its output, before `out_proj`."""
    n = x.width
    before, after, u = b.split(b.linear(x, f"{layer}.shortconv.in_proj", 3 * n), n, n, n)
    return b.mul(after, b.conv1d(b.mul(before, u), f"{layer}.shortconv.conv", n_taps))
