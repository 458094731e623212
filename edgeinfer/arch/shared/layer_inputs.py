"""Write per-layer embeddings: rows of a second table, of which each layer mixes a part in."""

from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.program.builder import Builder
from edgeinfer.program.values import Value


def layer_inputs(b: Builder, x: Value, hp: Hyper, width: int) -> Value:
    """Return what the layers mix in, one behind the other: the token's row and its embedding's."""
    n = hp.n_layers * width
    rows = b.embed("per_layer_token_embd", hp.n_vocab, n, scale=width**0.5)
    h = b.scale(b.linear(x, "per_layer_model_proj", n), by=hp.n_embd**-0.5)
    h = b.rms_norm(h, "per_layer_proj_norm", hp.eps, groups=hp.n_layers)
    return b.scale(b.add(h, rows), by=2**-0.5)


def mixed_in(b: Builder, x: Value, row: Value, layer: str, eps: float) -> Value:
    """Gate a layer's row by x and add what becomes of it."""
    h = b.gated(b.linear(x, f"{layer}.inp_gate", row.width), row, "gelu_tanh")
    h = b.linear(h, f"{layer}.proj", x.width)
    return b.add(x, b.rms_norm(h, f"{layer}.post_norm", eps))
