"""Write whole decoders: embeddings, layers of attention and MLP between norms, logits.

What families differ in are arguments: where the norms stand, what the MLP is, factors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeinfer.arch.shared.blocks import (
    Experts,
    Heads,
    gated_mlp,
    gqa_block,
    head,
    moe_block,
    plain_mlp,
    selects_rows,
)
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops import Fn, GatedFn
from edgeinfer.program.values import Value

Mlp = Callable[[Builder, Value, int], Value]
"""Called with the builder, the normalized rows and the layer's index."""


@dataclass(frozen=True, slots=True)
class Style:
    """What families differ in beside heads and MLP.

    Attributes:
        positions: whether embeddings of the tokens' positions are added to theirs.
        layer_norm: whether norms take the mean away; else they are root mean squares.
        parallel: whether the MLP reads what attention reads, instead of what it left.
        norm_before: whether attention and MLP read normalized rows.
        norm_after: whether what they give is normalized.
        ffn_norm: the name of the norm before the MLP.
        embed_by: what embeddings are multiplied by.
        residual_by: what attention and MLP are multiplied by before they are added.
        logits_by: what logits are multiplied by.
        logits_cap: their soft cap, 0 for none.
    """

    positions: bool = False
    layer_norm: bool = False
    parallel: bool = False
    norm_before: bool = True
    norm_after: bool = False
    ffn_norm: str = "ffn_norm"
    embed_by: float = 1.0
    residual_by: float = 1.0
    logits_by: float = 1.0
    logits_cap: float = 0.0


PLAIN = Style()


def dense(hp: Hyper, fn: GatedFn) -> Mlp:
    """Return the MLP of a gate, one matrix up and one down."""
    return lambda b, x, il: gated_mlp(b, x, f"blk.{il}", hp.n_ff[il], fn)


def sparse(experts: Experts, fn: GatedFn) -> Mlp:
    """Return the MLP that sends rows to experts."""
    return lambda b, x, il: moe_block(b, x, f"blk.{il}", experts, fn)


def plain(hp: Hyper, fn: Fn) -> Mlp:
    """Return the MLP of one matrix up and one down."""
    return lambda b, x, il: plain_mlp(b, x, f"blk.{il}", hp.n_ff[il], fn)


def decoder(b: Builder, hp: Hyper, plan: Sequence[Heads], mlp: Mlp, style: Style = PLAIN) -> None:
    """Write a decoder whose layers attend and apply an MLP, each added to what came in.

    `plan` has the heads of each layer.
    """

    def norm(x: Value, name: str) -> Value:
        return (b.layer_norm if style.layer_norm else b.rms_norm)(x, name, hp.eps)

    x = b.embed("token_embd", hp.n_vocab, hp.n_embd, scale=style.embed_by)
    if style.positions:
        x = b.add(x, b.embed("position_embd", hp.n_ctx_train, hp.n_embd, ids="pos"))
    for il, heads in enumerate(plan):
        layer = f"blk.{il}"
        h = norm(x, f"{layer}.attn_norm") if style.norm_before else x
        o = gqa_block(b, h, layer, heads)
        if il == hp.n_layers - 1 and selects_rows(hp):
            o, x = b.rows(o), b.rows(x)
            h = b.rows(h) if style.parallel else h
        o = b.linear(o, f"{layer}.attn_output", hp.n_embd)
        if style.norm_after:
            o = norm(o, f"{layer}.post_attention_norm")
        x = b.add(x, o, alpha=style.residual_by)
        if not style.parallel:
            h = norm(x, f"{layer}.{style.ffn_norm}") if style.norm_before else x
        h = mlp(b, h, il)
        if style.norm_after:
            h = norm(h, f"{layer}.post_ffw_norm")
        x = b.add(x, h, alpha=style.residual_by)
    head(b, norm(x, "output_norm"), hp, by=style.logits_by, cap=style.logits_cap)
