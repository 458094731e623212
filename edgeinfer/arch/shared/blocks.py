"""Write the shapes architectures share, as functions over the builder: one call, one difference."""

from dataclasses import dataclass, replace
from typing import Literal

from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.arch.shared.pooling import give
from edgeinfer.errors import ModelFormatError
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops import Fn, GatedFn
from edgeinfer.program.ops_mixing import Mask, Pairing, WindowKind
from edgeinfer.program.ops_routing import ONE_GROUP, Groups, Score
from edgeinfer.program.rope import RopeTable
from edgeinfer.program.values import ConstantRef, Use, Value, WeightRef

QkNorm = Literal["none", "heads", "rows", "own"]


@dataclass(frozen=True, slots=True)
class Heads:
    """What varies between the attention blocks of grouped-query models.

    Attributes:
        rope: how q and k turn, None to leave them.
        window: tokens a query sees, itself among them; 0 is no window.
        qk_norm: whether q and k are normalized before they turn: each head, the whole row,
            or each head with weights of its own and without its mean.
        temperature: (beta, length) of a factor on queries that grows with the position.
        sinks: whether each head has a logit of its own that attends to nothing.
        mask: whether a query sees what stands before it, or all.
        window_kind: whether a window is behind it, or that far to both sides.
        slopes: what heads take from a score for each position of distance.
    """

    n_heads: int
    n_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    rope: RopeTable | None = None
    pairing: Pairing = "half"
    softcap: float = 0.0
    window: int = 0
    qk_norm: QkNorm = "none"
    eps: float = 0.0
    temperature: tuple[float, int] | None = None
    sinks: bool = False
    mask: Mask = "causal"
    window_kind: WindowKind = "past"
    slopes: ConstantRef | None = None


def heads_of(hp: Hyper, il: int, rope: RopeTable | None) -> Heads:
    """Return the heads of a layer as they are in most models."""
    return Heads(
        n_heads=hp.n_heads[il],
        n_kv_heads=hp.n_kv_heads[il],
        key_dim=hp.key_dim,
        value_dim=hp.value_dim,
        scale=hp.key_dim**-0.5,
        rope=rope,
        eps=hp.eps,
        mask="causal" if hp.causal else "full",
    )


def symmetric(heads: Heads) -> Heads:
    """Let a window reach half its size to both sides; a window of one token, which has none, fails.

    Raises ModelFormatError.
    """
    if heads.window == 1:
        raise ModelFormatError("attention.sliding_window: found 1 (need 0, or 2 and more)")
    return replace(heads, window=heads.window // 2, window_kind="symmetric")


@dataclass(frozen=True, slots=True)
class Experts:
    """Sizes and routing of a mixture of experts.

    `norm` makes the chosen weights sum to 1, but for `norm_eps` that is added to their sum.
    """

    n_experts: int
    n_used: int
    n_ff: int
    by: float = 1.0
    score: Score = "softmax"
    norm: bool = True
    norm_eps: float = 0.0
    groups: Groups = ONE_GROUP


def qkv(b: Builder, x: Value, layer: str, heads: Heads) -> tuple[Value, Value, Value]:
    """Project x to queries, keys and values, from one fused matrix or three."""
    widths = (
        heads.n_heads * heads.key_dim,
        heads.n_kv_heads * heads.key_dim,
        heads.n_kv_heads * heads.value_dim,
    )
    names = (f"{layer}.attn_q", f"{layer}.attn_k", f"{layer}.attn_v")
    if not b.has(f"{layer}.attn_qkv.weight"):
        q, k, v = (b.linear(x, name, width) for name, width in zip(names, widths, strict=True))
        return q, k, v
    parts = list(b.split(b.linear(x, f"{layer}.attn_qkv", sum(widths)), *widths))
    for i, (name, width) in enumerate(zip(names, widths, strict=True)):
        if b.has(f"{name}.bias"):
            parts[i] = b.add(parts[i], WeightRef(f"{name}.bias", (width,), Use.VECTOR))
    return parts[0], parts[1], parts[2]


def gqa_block(b: Builder, x: Value, layer: str, heads: Heads) -> Value:
    """Attend with grouped query heads; return the heads' outputs, before `attn_output`."""
    return attend(b, *qkv(b, x, layer, heads), layer, heads)


def turned(b: Builder, x: Value, norm: str, n_heads: int, heads: Heads) -> Value:
    """Norm and turn queries or keys."""
    if heads.qk_norm == "own":
        x = b.layer_norm(x, norm, heads.eps, groups=n_heads)
    elif heads.qk_norm != "none":
        x = b.rms_norm(x, norm, heads.eps, groups=1 if heads.qk_norm == "rows" else n_heads)
    if heads.rope is None:
        return x
    return b.rope(x, heads.rope, n_heads, pairing=heads.pairing)


def attend(b: Builder, q: Value, k: Value, v: Value, layer: str, heads: Heads) -> Value:
    """Norm and turn queries and keys, keep keys and values, attend to all there are."""
    q = turned(b, q, f"{layer}.attn_q_norm", heads.n_heads, heads)
    k = turned(b, k, f"{layer}.attn_k_norm", heads.n_kv_heads, heads)
    if heads.temperature is not None:
        q = b.scale(q, temp=heads.temperature)
    kv = b.kv(
        heads.n_kv_heads,
        heads.key_dim,
        heads.value_dim,
        window=heads.window,
        kind="paged" if heads.mask == "causal" else "step",
    )
    b.kv_store(k, v, kv)
    sinks = None
    if heads.sinks:
        sinks = WeightRef(f"{layer}.attn_sinks.weight", (heads.n_heads,), Use.VECTOR)
    return b.attention(
        q,
        kv,
        heads.n_heads,
        scale=heads.scale,
        softcap=heads.softcap,
        mask=heads.mask,
        window_kind=heads.window_kind,
        sinks=sinks,
        slopes=heads.slopes,
    )


def gated_mlp(b: Builder, x: Value, layer: str, n_ff: int, fn: GatedFn) -> Value:
    """Return ffn_down(fn(ffn_gate x) * ffn_up x)."""
    g = b.linear(x, f"{layer}.ffn_gate", n_ff)
    u = b.linear(x, f"{layer}.ffn_up", n_ff)
    return b.linear(b.gated(g, u, fn), f"{layer}.ffn_down", x.width)


def shared_mlp(b: Builder, x: Value, layer: str, n_ff: int, fn: GatedFn) -> Value:
    """Return what the expert gives that all rows meet."""
    g = b.linear(x, f"{layer}.ffn_gate_shexp", n_ff)
    u = b.linear(x, f"{layer}.ffn_up_shexp", n_ff)
    return b.linear(b.gated(g, u, fn), f"{layer}.ffn_down_shexp", x.width)


def fused_mlp(b: Builder, x: Value, layer: str, n_ff: int, fn: GatedFn) -> Value:
    """Return the same from a file whose ffn_up has the rows of the gate before its own."""
    g, u = b.split(b.linear(x, f"{layer}.ffn_up", 2 * n_ff), n_ff, n_ff)
    return b.linear(b.gated(g, u, fn), f"{layer}.ffn_down", x.width)


def plain_mlp(b: Builder, x: Value, layer: str, n_ff: int, fn: Fn) -> Value:
    """Return ffn_down(fn(ffn_up x))."""
    h = b.act(b.linear(x, f"{layer}.ffn_up", n_ff), fn)
    return b.linear(h, f"{layer}.ffn_down", x.width)


def moe_block(
    b: Builder, x: Value, layer: str, experts: Experts, fn: GatedFn, *, logits: Value | None = None
) -> Value:
    """Send each row to its best experts and sum their answers by the router's weights.

    `logits` are the router's, where it reads other rows than the experts do. `exp_probs_b`, if the
    file has it, takes part in the choice alone.
    """
    n, n_ff = experts.n_experts, experts.n_ff
    if logits is None:
        logits = b.linear(x, f"{layer}.ffn_gate_inp", n)
    ids, w = _chosen(b, logits, layer, experts)
    if b.has(f"{layer}.ffn_gate_up_exps.weight"):
        both = b.expert_linear(x, ids, f"{layer}.ffn_gate_up_exps", (n, 2 * n_ff, x.width))
        g, u = b.split(both, n_ff, n_ff, groups=experts.n_used)
    else:
        g = b.expert_linear(x, ids, f"{layer}.ffn_gate_exps", (n, n_ff, x.width))
        u = b.expert_linear(x, ids, f"{layer}.ffn_up_exps", (n, n_ff, x.width))
    y = b.expert_linear(b.gated(g, u, fn), ids, f"{layer}.ffn_down_exps", (n, x.width, n_ff))
    return b.combine(y, w)


def plain_moe_block(b: Builder, x: Value, layer: str, experts: Experts, fn: Fn) -> Value:
    """Do so with experts that have no gate; add `ffn_exps.bias`, if the file has it, to the sum."""
    n, n_ff = experts.n_experts, experts.n_ff
    ids, w = _chosen(b, b.linear(x, f"{layer}.ffn_gate_inp", n), layer, experts)
    u = b.expert_linear(x, ids, f"{layer}.ffn_up_exps", (n, n_ff, x.width))
    y = b.expert_linear(b.act(u, fn), ids, f"{layer}.ffn_down_exps", (n, x.width, n_ff))
    bias = b.optional(f"{layer}.ffn_exps.bias", (x.width,))
    return b.combine(y, w) if bias is None else b.add(b.combine(y, w), bias)


def _chosen(b: Builder, logits: Value, layer: str, experts: Experts) -> tuple[Value, Value]:
    return b.route(
        logits,
        experts.n_used,
        score=experts.score,
        norm=experts.norm,
        norm_eps=experts.norm_eps,
        by=experts.by,
        bias=b.optional(f"{layer}.exp_probs_b.bias", (experts.n_experts,)),
        groups=experts.groups,
    )


def selects_rows(hp: Hyper) -> bool:
    """Tell whether the last layer may leave out the rows that are not wanted."""
    return hp.reading is None or hp.reading.kind is None


def head(
    b: Builder, x: Value, hp: Hyper, *, by: float = 1.0, cap: float = 0.0, fn: Fn = "tanh"
) -> None:
    """Write the logits, from `output` or, where the file has none, from the tied `token_embd`.

    Of a model that only reads, write what it gives instead; `fn` is inside what gives scores.
    """
    if hp.reading is not None:
        give(b, x, hp.reading, fn=fn, eps=hp.eps)
        return
    b.output("hidden", x)
    name = "output" if b.has("output.weight") else "token_embd"
    logits = b.linear(x, name, hp.n_vocab)
    plain = by == 1.0 and cap == 0.0
    b.output("logits", logits if plain else b.scale(logits, by=by, cap=cap))
