"""Write the decoders of Nemotron-H: a layer attends, recurs or is an MLP, whose width is no 0."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import head, heads_of, selects_rows
from edgeinfer.arch.shared.decoder import Mlp, attention
from edgeinfer.arch.shared.hyper import LAYER_EPS, RMS_EPS, Hyper, read_hyper
from edgeinfer.arch.shared.mamba2 import mamba2
from edgeinfer.arch.shared.state_sizes import read_state
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.quant.tensor import Tensor


def read_nemotron(m: Metadata, tensors: Mapping[str, Tensor], n_ctx: int) -> Hyper:
    """Read the base keys; a file may have what its norms add under the key of other norms."""
    eps = RMS_EPS if m.full_key(RMS_EPS) in m else LAYER_EPS
    return read_hyper(m, tensors, n_ctx, is_hybrid=True, least_ff=0, eps=eps)


def nemotron_decoder(b: Builder, m: Metadata, hp: Hyper, mlp: Mlp) -> None:
    """Write a decoder; raises ModelFormatError naming the key at fault."""
    recur = mamba2(read_state(m), hp.eps)
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    for il, (n_ff, n_kv) in enumerate(zip(hp.n_ff, hp.n_kv_heads, strict=True)):
        layer, is_last = f"blk.{il}", il == hp.n_layers - 1 and selects_rows(hp)
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        if n_ff and n_kv:
            raise m.error(
                ".feed_forward_length", f"found {n_ff} in layer {il} (need 0: it attends)"
            )
        if n_ff:
            x, h = (b.rows(x), b.rows(h)) if is_last else (x, h)
            x = b.add(x, mlp(b, h, il))
            continue
        mixed = (attention(heads_of(hp, il, None)) if n_kv else recur)(b, h, layer)
        if is_last:
            mixed, x = [(b.rows(o), name) for o, name in mixed], b.rows(x)
        for o, name in mixed:
            x = b.add(x, b.linear(o, f"{layer}.{name}", hp.n_embd))
    head(b, b.rms_norm(x, "output_norm", hp.eps), hp)
