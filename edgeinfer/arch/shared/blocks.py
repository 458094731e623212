"""Write the shapes architectures share, as functions over the builder: one call, one difference."""

from dataclasses import dataclass

from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops import GatedFn
from edgeinfer.program.ops_mixing import Pairing
from edgeinfer.program.rope import RopeTable
from edgeinfer.program.values import Use, Value, WeightRef


@dataclass(frozen=True, slots=True)
class Heads:
    """What varies between the attention blocks of grouped-query models.

    `qk_norm_eps` above 0 normalizes each head of q and k before they turn. A `window` of 0 is none.
    """

    n_heads: int
    n_kv_heads: int
    key_dim: int
    value_dim: int
    rope: RopeTable
    pairing: Pairing
    scale: float
    softcap: float = 0.0
    window: int = 0
    qk_norm_eps: float = 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Sizes and routing of a mixture of experts."""

    n_experts: int
    n_used: int
    n_ff: int
    by: float = 1.0


def normed_heads(hp: Hyper, il: int, rope: RopeTable) -> Heads:
    """Return the heads of a layer that norms queries and keys, and turns them by halves."""
    return Heads(
        n_heads=hp.n_heads[il],
        n_kv_heads=hp.n_kv_heads[il],
        key_dim=hp.key_dim,
        value_dim=hp.value_dim,
        rope=rope,
        pairing="half",
        scale=hp.key_dim**-0.5,
        qk_norm_eps=hp.eps,
    )


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


def attend(b: Builder, q: Value, k: Value, v: Value, layer: str, heads: Heads) -> Value:
    """Norm and turn queries and keys, keep keys and values, attend to all there are."""
    if heads.qk_norm_eps > 0:
        q = b.rms_norm(q, f"{layer}.attn_q_norm", heads.qk_norm_eps, groups=heads.n_heads)
        k = b.rms_norm(k, f"{layer}.attn_k_norm", heads.qk_norm_eps, groups=heads.n_kv_heads)
    q = b.rope(q, heads.rope, heads.n_heads, pairing=heads.pairing)
    k = b.rope(k, heads.rope, heads.n_kv_heads, pairing=heads.pairing)
    kv = b.kv(heads.n_kv_heads, heads.key_dim, heads.value_dim, window=heads.window)
    b.kv_store(k, v, kv)
    return b.attention(q, kv, heads.n_heads, scale=heads.scale, softcap=heads.softcap)


def gated_mlp(b: Builder, x: Value, layer: str, n_ff: int, fn: GatedFn) -> Value:
    """Return ffn_down(fn(ffn_gate x) * ffn_up x)."""
    g = b.linear(x, f"{layer}.ffn_gate", n_ff)
    u = b.linear(x, f"{layer}.ffn_up", n_ff)
    return b.linear(b.gated(g, u, fn), f"{layer}.ffn_down", x.width)


def moe_block(b: Builder, x: Value, layer: str, experts: Experts, fn: GatedFn) -> Value:
    """Send each row to its best experts, chosen by softmax, their weights made to sum to 1."""
    n, n_ff = experts.n_experts, experts.n_ff
    logits = b.linear(x, f"{layer}.ffn_gate_inp", n)
    ids, w = b.route(logits, experts.n_used, score="softmax", norm=True, by=experts.by)
    g = b.expert_linear(x, ids, f"{layer}.ffn_gate_exps", (n, n_ff, x.width))
    u = b.expert_linear(x, ids, f"{layer}.ffn_up_exps", (n, n_ff, x.width))
    y = b.expert_linear(b.gated(g, u, fn), ids, f"{layer}.ffn_down_exps", (n, x.width, n_ff))
    return b.combine(y, w)


def head(b: Builder, x: Value, n_vocab: int, *, cap: float = 0.0) -> None:
    """Write the logits, from `output` or, where the file has none, from the tied `token_embd`."""
    name = "output" if b.has("output.weight") else "token_embd"
    logits = b.linear(x, name, n_vocab)
    b.output("logits", b.scale(logits, cap=cap) if cap > 0 else logits)
