"""Write whole decoders: embeddings, layers that mix positions and MLPs between norms, logits.

What families differ in are arguments: where the norms stand, what mixes, what the MLP is, factors.
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

Mixed = Sequence[tuple[Value, str]]
Mixer = Callable[[Builder, Value, str], Mixed]
"""Called with the builder, the normalized rows and the layer's name; mixes positions.

Returns values, each with the name of the matrix whose product with it is added to the rows.
"""


@dataclass(frozen=True, slots=True)
class Style:
    """What families differ in beside heads and MLP.

    Attributes:
        positions: whether embeddings of the tokens' positions are added to theirs.
        embed_norm: whether embeddings are normalized.
        layer_norm: whether norms take the mean away; else they are root mean squares.
        parallel: whether the MLP reads what attention reads, instead of what it left.
        norm_before: whether attention and MLP read normalized rows.
        first_norm: whether the first attention does, too.
        norm_after: whether what they give is normalized.
        ffn_norm: the name of the norm before the MLP.
        output_norm: the name of the last norm.
        embed_by: what embeddings are multiplied by.
        residual_by: what attention and MLP are multiplied by before they are added.
        logits_by: what logits are multiplied by.
        logits_cap: their soft cap, 0 for none.
        head_fn: the function inside the head of a model that gives scores.
    """

    positions: bool = False
    embed_norm: bool = False
    layer_norm: bool = False
    parallel: bool = False
    norm_before: bool = True
    first_norm: bool = True
    norm_after: bool = False
    ffn_norm: str = "ffn_norm"
    output_norm: str = "output_norm"
    embed_by: float = 1.0
    residual_by: float = 1.0
    logits_by: float = 1.0
    logits_cap: float = 0.0
    head_fn: Fn = "tanh"


PLAIN = Style()


def attention(heads: Heads) -> Mixer:
    """Return the mixer of grouped query heads."""
    return lambda b, x, layer: [(gqa_block(b, x, layer, heads), "attn_output")]


def dense(hp: Hyper, fn: GatedFn) -> Mlp:
    """Return the MLP of a gate, one matrix up and one down."""
    return lambda b, x, il: gated_mlp(b, x, f"blk.{il}", hp.n_ff[il], fn)


def sparse(experts: Experts, fn: GatedFn) -> Mlp:
    """Return the MLP that sends rows to experts."""
    return lambda b, x, il: moe_block(b, x, f"blk.{il}", experts, fn)


def plain(hp: Hyper, fn: Fn) -> Mlp:
    """Return the MLP of one matrix up and one down."""
    return lambda b, x, il: plain_mlp(b, x, f"blk.{il}", hp.n_ff[il], fn)


def decoder(
    b: Builder, hp: Hyper, plan: Sequence[Heads | Mixer], mlp: Mlp, style: Style = PLAIN
) -> None:
    """Write a decoder whose layers mix positions and apply an MLP, each added to what came in.

    `plan` has the heads of each layer that attends, the mixers of the others.
    """

    def norm(x: Value, name: str) -> Value:
        return (b.layer_norm if style.layer_norm else b.rms_norm)(x, name, hp.eps)

    x = b.embed("token_embd", hp.n_vocab, hp.n_embd, scale=style.embed_by)
    if style.positions:
        x = b.add(x, b.embed("position_embd", hp.n_ctx_train, hp.n_embd, ids="pos"))
    if style.embed_norm:
        x = norm(x, "token_embd_norm")
    for il, of_layer in enumerate(plan):
        layer = f"blk.{il}"
        reads_norm = style.norm_before and (il > 0 or style.first_norm)
        h = norm(x, f"{layer}.attn_norm") if reads_norm else x
        mixed = (attention(of_layer) if isinstance(of_layer, Heads) else of_layer)(b, h, layer)
        if il == hp.n_layers - 1 and selects_rows(hp):
            mixed = [(b.rows(o), name) for o, name in mixed]
            x, h = b.rows(x), b.rows(h) if style.parallel else h
        for o, name in mixed:
            o = b.linear(o, f"{layer}.{name}", hp.n_embd)
            if style.norm_after:
                o = norm(o, f"{layer}.post_attention_norm")
            x = b.add(x, o, alpha=style.residual_by)
        if not style.parallel:
            h = norm(x, f"{layer}.{style.ffn_norm}") if style.norm_before else x
        h = mlp(b, h, il)
        if style.norm_after:
            h = norm(h, f"{layer}.post_ffw_norm")
        x = b.add(x, h, alpha=style.residual_by)
    by, cap = style.logits_by, style.logits_cap
    head(b, norm(x, style.output_norm), hp, by=by, cap=cap, fn=style.head_fn)
