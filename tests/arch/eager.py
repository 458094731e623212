"""Compute the architectures the direct way: float64, whole sequences, no ops; the oracle."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


class Eager:
    """A model's arrays and keys, read as the architecture papers say."""

    def __init__(self, metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.arch = metadata["general.architecture"]
        self.m = metadata
        self.w = {name: array.astype(np.float64) for name, array in arrays.items()}

    def key(self, name: str, default: Any = None) -> Any:
        return self.m.get(f"{self.arch}.{name}", default)

    def norm(self, x: F64, name: str) -> F64:
        eps = self.key("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[f"{name}.weight"]

    def linear(self, x: F64, name: str) -> F64:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def attention(self, h: F64, blk: str, turn: Callable[[F64], F64], window: int) -> F64:
        n_heads, n_kv = self.key("attention.head_count"), self.key("attention.head_count_kv")
        n_kv = max(n_kv) if isinstance(n_kv, list) else n_kv
        dim = self.key("attention.key_length", h.shape[1] // n_heads)
        if f"{blk}.attn_qkv.weight" in self.w:
            cuts = [n_heads * dim, (n_heads + n_kv) * dim]
            q, k, v = np.split(self.linear(h, f"{blk}.attn_qkv"), cuts, axis=1)
        else:
            q, k, v = (self.linear(h, f"{blk}.attn_{p}") for p in "qkv")
        t = len(h)
        q, k, v = q.reshape(t, n_heads, dim), k.reshape(t, n_kv, dim), v.reshape(t, n_kv, dim)
        if f"{blk}.attn_q_norm.weight" in self.w:
            q, k = self.norm(q, f"{blk}.attn_q_norm"), self.norm(k, f"{blk}.attn_k_norm")
        q, k = turn(q), turn(k)
        out = np.zeros_like(q)
        for i in range(t):
            first = max(0, i - window + 1) if window else 0
            end = i + 1 if self.key("attention.causal", True) else t
            for head in range(n_heads):
                j = head // (n_heads // n_kv)
                s = k[first:end, j] @ q[i, head] / math.sqrt(dim)
                p = np.exp(s - s.max())
                out[i, head] = p @ v[first:end, j] / p.sum()
        return self.linear(out.reshape(t, -1), f"{blk}.attn_output")

    def mlp(self, h: F64, blk: str, fn: Callable[[F64], F64]) -> F64:
        if f"{blk}.ffn_gate_inp.weight" not in self.w:
            return self.linear(
                fn(self.linear(h, f"{blk}.ffn_gate")) * self.linear(h, f"{blk}.ffn_up"),
                f"{blk}.ffn_down",
            )
        gate, up, down = (self.w[f"{blk}.ffn_{p}_exps.weight"] for p in ("gate", "up", "down"))
        out = np.zeros_like(h)
        for i, logits in enumerate(self.linear(h, f"{blk}.ffn_gate_inp")):
            p = np.exp(logits - logits.max())
            best = np.argsort(-p, kind="stable")[: self.key("expert_used_count")]
            for e in best:
                y = down[e] @ (fn(gate[e] @ h[i]) * (up[e] @ h[i]))
                out[i] += p[e] / p[best].sum() * y
        return out


def angles(n: int, dim: int, theta: float, divisors: Any = 1.0) -> F64:
    """Return position times frequency, `(n, dim / 2)`."""
    inverse = np.array([theta ** (-2 * i / dim) for i in range(dim // 2)]) / divisors
    return np.arange(n)[:, None] * inverse


def turn_pairs(x: F64, th: F64, interleaved: bool) -> F64:
    """Rotate `(t, heads, dim)` as complex numbers."""
    half = x.shape[2] // 2
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    z = (a + 1j * b) * np.exp(1j * th)[:, None]
    if interleaved:
        return np.stack([z.real, z.imag], -1).reshape(x.shape)
    return np.concatenate([z.real, z.imag], -1)


def silu(x: F64) -> F64:
    return x / (1 + np.exp(-x))


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def llama_logits(metadata: dict[str, Any], arrays: dict[str, Any], tokens: list[int]) -> F64:
    """Return the logits of every position."""
    e = Eager(metadata, arrays)
    dim = e.key("attention.key_length")
    divisors = e.w.get("rope_freqs.weight", 1.0)
    th = angles(len(tokens), dim, e.key("rope.freq_base"), divisors)
    x = e.w["token_embd.weight"][tokens]
    for il in range(e.key("block_count")):
        blk = f"blk.{il}"
        h = e.norm(x, f"{blk}.attn_norm")
        x = x + e.attention(h, blk, lambda y: turn_pairs(y, th, True), 0)
        x = x + e.mlp(e.norm(x, f"{blk}.ffn_norm"), blk, silu)
    output = e.w.get("output.weight", e.w["token_embd.weight"])
    return e.norm(x, "output_norm") @ output.T


def gemma3_logits(metadata: dict[str, Any], arrays: dict[str, Any], tokens: list[int]) -> F64:
    """Return the logits of every position."""
    e = Eager(metadata, arrays)
    dim, n = e.key("attention.key_length"), len(tokens)
    wide = angles(n, dim, e.key("rope.freq_base")) / e.key("rope.scaling.factor")
    near = angles(n, dim, e.key("rope.freq_base_swa", 10000.0))
    x = e.w["token_embd.weight"][tokens] * math.sqrt(e.key("embedding_length"))
    for il in range(e.key("block_count")):
        blk = f"blk.{il}"
        period = e.key("attention.sliding_window_pattern")
        windowed = il % period < period - 1
        window, th = (e.key("attention.sliding_window"), near) if windowed else (0, wide)
        h = e.norm(x, f"{blk}.attn_norm")
        h = e.attention(h, blk, lambda y, th=th: turn_pairs(y, th, False), window)
        x = x + e.norm(h, f"{blk}.post_attention_norm")
        h = e.mlp(e.norm(x, f"{blk}.ffn_norm"), blk, gelu)
        x = x + e.norm(h, f"{blk}.post_ffw_norm")
    cap = e.key("final_logit_softcapping")
    return cap * np.tanh(e.norm(x, "output_norm") @ e.w["token_embd.weight"].T / cap)


def lfm2_logits(metadata: dict[str, Any], arrays: dict[str, Any], tokens: list[int]) -> F64:
    """Return the logits of every position."""
    return lfm2_rows(metadata, arrays, tokens) @ arrays["token_embd.weight"].T.astype(float)


def lfm2_rows(metadata: dict[str, Any], arrays: dict[str, Any], tokens: list[int]) -> F64:
    """Return what the last norm makes of every position."""
    e = Eager(metadata, arrays)
    n, dim = len(tokens), e.key("embedding_length") // e.key("attention.head_count")
    th = angles(n, dim, e.key("rope.freq_base"))
    x = e.w["token_embd.weight"][tokens]
    for il, n_kv in enumerate(e.key("attention.head_count_kv")):
        blk = f"blk.{il}"
        h = e.norm(x, f"{blk}.attn_norm")
        if n_kv:
            x = x + e.attention(h, blk, lambda y: turn_pairs(y, th, False), 0)
        else:
            x = x + short_conv(e, h, f"{blk}.shortconv")
        x = x + e.mlp(e.norm(x, f"{blk}.ffn_norm"), blk, silu)
    return e.norm(x, "token_embd_norm")


def short_conv(e: Eager, h: F64, name: str) -> F64:
    """Return out_proj(c * conv(b * u)), b, c, u = in_proj h."""
    b, c, u = np.split(e.linear(h, f"{name}.in_proj"), 3, axis=1)
    taps = e.w[f"{name}.conv.weight"]
    ahead = 0 if e.key("attention.causal", True) else taps.shape[1] // 2
    padded = np.pad(b * u, ((taps.shape[1] - 1 - ahead, ahead), (0, 0)))
    seen = [padded[j : j + len(h)] * taps[:, j] for j in range(taps.shape[1])]
    return e.linear(c * (sum(seen) + e.w.get(f"{name}.conv.bias", 0)), f"{name}.out_proj")


def qwen35_logits(metadata: dict[str, Any], arrays: dict[str, Any], tokens: list[int]) -> F64:
    """Return the logits of every position."""
    e = Eager(metadata, arrays)
    th = angles(len(tokens), e.key("rope.dimension_count"), e.key("rope.freq_base"))
    x = e.w["token_embd.weight"][tokens]
    for il, recurs in enumerate(e.key("attention.recurrent_layers")):
        blk = f"blk.{il}"
        h = e.norm(x, f"{blk}.attn_norm")
        x = x + (delta_net(e, h, blk) if recurs else gated_attention(e, h, blk, th))
        h = e.norm(x, f"{blk}.post_attention_norm")
        x = x + e.mlp(h, blk, silu)
        if f"{blk}.ffn_gate_inp_shexp.weight" in e.w:
            gate, up = (e.linear(h, f"{blk}.ffn_{part}_shexp") for part in ("gate", "up"))
            let_in = 1 / (1 + np.exp(-h @ e.w[f"{blk}.ffn_gate_inp_shexp.weight"]))
            x = x + let_in[:, None] * e.linear(silu(gate) * up, f"{blk}.ffn_down_shexp")
    return e.norm(x, "output_norm") @ e.w["output.weight"].T


def gated_attention(e: Eager, h: F64, blk: str, th: F64) -> F64:
    """Return attention whose heads are gated by the second half of each head of attn_q."""
    n, dim, n_rot = e.key("attention.head_count"), e.key("attention.key_length"), 2 * th.shape[1]
    both = e.w[f"{blk}.attn_q.weight"].reshape(n, 2, dim, -1)
    inner = Eager(e.m, {})
    inner.w = e.w | {
        f"{blk}.attn_q.weight": both[:, 0].reshape(n * dim, -1),
        f"{blk}.attn_output.weight": np.eye(n * dim),
    }

    def turn(y: F64) -> F64:
        return np.concatenate([turn_pairs(y[..., :n_rot], th, False), y[..., n_rot:]], -1)

    gate = h @ both[:, 1].reshape(n * dim, -1).T
    return e.linear(inner.attention(h, blk, turn, 0) / (1 + np.exp(-gate)), f"{blk}.attn_output")


def delta_net(e: Eager, h: F64, blk: str) -> F64:
    """Return ssm_out of the gated delta rule, one position after another."""
    k_heads, v_heads = e.key("ssm.group_count"), e.key("ssm.time_step_rank")
    key_dim, t = e.key("ssm.state_size"), len(h)
    taps, u = e.w[f"{blk}.ssm_conv1d.weight"], e.linear(h, f"{blk}.attn_qkv")
    padded = np.concatenate([np.zeros((taps.shape[1] - 1, taps.shape[0])), u])
    u = silu(np.array([(padded[i : i + taps.shape[1]].T * taps).sum(1) for i in range(t)]))
    q, k, v = np.split(u, [k_heads * key_dim, 2 * k_heads * key_dim], axis=1)
    q, k = (part.reshape(t, k_heads, key_dim) for part in (q, k))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))
    v = v.reshape(t, v_heads, -1)
    dt = np.log1p(np.exp(e.linear(h, f"{blk}.ssm_alpha") + e.w[f"{blk}.ssm_dt.bias"]))
    keep = np.exp(dt * e.w[f"{blk}.ssm_a"])
    beta = 1 / (1 + np.exp(-e.linear(h, f"{blk}.ssm_beta")))
    y, state = np.zeros_like(v), np.zeros((v_heads, key_dim, v.shape[2]))
    for i in range(t):
        for j in range(v_heads):
            key = k[i, j % k_heads]
            state[j] *= keep[i, j]
            state[j] += np.outer(key, (v[i, j] - key @ state[j]) * beta[i, j])
            y[i, j] = q[i, j % k_heads] @ state[j] / math.sqrt(key_dim)
    y = e.norm(y, f"{blk}.ssm_norm").reshape(t, -1)
    return e.linear(y * silu(e.linear(h, f"{blk}.attn_gate")), f"{blk}.ssm_out")
