# Beside gemma3: heads of two sizes and unscaled scores, values normalized (or keys in their place),
# last layers that read the keys and values of earlier ones, embeddings for each layer, a factor at
# a layer's end; the 26B has experts beside its MLP.
"""Write the programs of architecture "gemma4": Gemma 4, text: E2B, E4B, 12B, 26B-A4B, 31B."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import (
    Experts,
    Heads,
    gated_mlp,
    head,
    heads_of,
    moe_block,
    selects_rows,
    turned,
)
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM, MAX_WIDTH, Hyper, read_hyper
from edgeinfer.arch.shared.kv_sources import kv_sources
from edgeinfer.arch.shared.layer_inputs import layer_inputs, mixed_in
from edgeinfer.arch.shared.rotation import plain_table, rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Use, Value, WeightRef
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    plan = _plan(m, tensors, hp)
    sources = kv_sources(m, plan)
    experts = read_experts(m, tensors, hp) if m.integer(".expert_count", 0, least=0) else None
    b = Builder("gemma4", tensors)
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd, scale=hp.n_embd**0.5)
    n_input = m.integer(".embedding_length_per_layer_input", 0, least=0, most=MAX_WIDTH)
    last = max(sources)  # of the layers that keep something, behind which few rows are wanted
    inputs: list[Value] = []
    if n_input:
        sizes = [n_input] * last + [n_input * (hp.n_layers - last)]
        inputs += b.split(layer_inputs(b, x, hp, n_input), *sizes)
    kvs: list[int] = []
    for il, heads in enumerate(plan):
        layer = f"blk.{il}"
        h = b.rms_norm(x, f"{layer}.attn_norm", hp.eps)
        q = b.linear(h, f"{layer}.attn_q", heads.n_heads * heads.key_dim)
        q = turned(b, q, f"{layer}.attn_q_norm", heads.n_heads, heads)
        if sources[il] == il:
            kvs.append(_keep(b, h, layer, heads))
        else:  # checkpoints bring them all the same
            kvs.append(kvs[sources[il]])
            b.leave_out(*(f"{layer}.{name}.weight" for name in ("attn_k", "attn_v", "attn_k_norm")))
        if il == last and selects_rows(hp):
            q, x, *inputs[last:] = map(b.rows, (q, x, *inputs[last:]))
        if il == last and n_input:
            inputs[last:] = b.split(inputs[last], *[n_input] * (hp.n_layers - last))
        o = b.attention(q, kvs[il], heads.n_heads, scale=heads.scale)
        o = b.linear(o, f"{layer}.attn_output", hp.n_embd)
        x = b.add(x, b.rms_norm(o, f"{layer}.post_attention_norm", hp.eps))
        h = _mlp(b, x, layer, hp.n_ff[il], experts, hp.eps)
        x = b.add(x, b.rms_norm(h, f"{layer}.post_ffw_norm", hp.eps))
        if inputs:
            x = mixed_in(b, x, inputs[il], layer, hp.eps)
        if b.has(f"{layer}.layer_output_scale.weight"):
            x = b.mul(x, WeightRef(f"{layer}.layer_output_scale.weight", (1,), Use.VECTOR))
    cap = m.number(".final_logit_softcapping", 0.0, least=0.0)
    head(b, b.rms_norm(x, "output_norm", hp.eps), hp, cap=cap)
    return b.finish(hp)


def _plan(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> list[Heads]:
    """Read the heads of each layer: those with a window have sizes and a RoPE of their own."""
    windowed = m.per_layer(".attention.sliding_window_pattern", hp.n_layers, least=0, most=1)
    key_dim = m.integer(".attention.key_length_swa", hp.key_dim, least=1, most=MAX_HEAD_DIM)
    value_dim = m.integer(".attention.value_length_swa", hp.value_dim, least=1, most=MAX_HEAD_DIM)
    window = m.integer(".attention.sliding_window", least=1)
    n_rot = rope_dims(m, key_dim, key=".rope.dimension_count_swa")
    swa = plain_table(m, ".rope.freq_base_swa", 10000.0, n_rot, name="swa")
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    plan = []
    for il in range(hp.n_layers):
        heads = replace(heads_of(hp, il, rope), scale=1.0, qk_norm="heads")
        if windowed[il]:
            heads = replace(heads, key_dim=key_dim, value_dim=value_dim, rope=swa, window=window)
        plan.append(heads)
    return plan


def _keep(b: Builder, x: Value, layer: str, heads: Heads) -> int:
    """Append a layer's keys and values to a KV of their own; return it."""
    n, width = heads.n_kv_heads, heads.n_kv_heads * heads.key_dim
    k = v = b.linear(x, f"{layer}.attn_k", width)
    if b.has(f"{layer}.attn_v.weight"):
        v = b.linear(x, f"{layer}.attn_v", n * heads.value_dim)
    k = turned(b, k, f"{layer}.attn_k_norm", n, heads)
    kv = b.kv(n, heads.key_dim, heads.value_dim, window=heads.window)
    b.kv_store(k, b.rms_norm(v, None, heads.eps, groups=n), kv)
    return kv


def _mlp(b: Builder, x: Value, layer: str, n_ff: int, experts: Experts | None, eps: float) -> Value:
    """Apply the MLP and, if there are experts, those: both to x, each behind norms of its own."""
    h = gated_mlp(b, b.rms_norm(x, f"{layer}.ffn_norm", eps), layer, n_ff, "gelu_tanh")
    if experts is None:
        return h
    scale = WeightRef(f"{layer}.ffn_gate_inp.scale", (x.width,), Use.VECTOR)
    logits = b.rms_norm(x, scale, eps)
    logits = b.linear(logits, f"{layer}.ffn_gate_inp", experts.n_experts, scaled=False)
    logits = b.scale(logits, by=x.width**-0.5)
    y = b.rms_norm(x, f"{layer}.pre_ffw_norm_2", eps)
    y = moe_block(b, y, layer, experts, "gelu_tanh", logits=logits)
    h = b.rms_norm(h, f"{layer}.post_ffw_norm_1", eps)
    return b.add(h, b.rms_norm(y, f"{layer}.post_ffw_norm_2", eps))
