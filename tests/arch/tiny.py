"""Make tiny random models of each architecture, with sizes that differ pairwise.

A swapped axis then fails, and random norms, biases and factors make a forgotten one visible.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.loader.gguf import GgufFile, open_gguf
from tests.gguf_writer import write_gguf

Arrays = dict[str, npt.NDArray[np.float32]]
N_VOCAB = 97


def random_arrays(shapes: dict[str, tuple[int, ...]], seed: int = 5) -> Arrays:
    """Return weights whose products keep a row's size, and norms near 1."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes.items():
        noise = rng.standard_normal(shape)
        if name.endswith("norm.weight"):
            arrays[name] = 1 + 0.3 * noise
        elif name == "rope_freqs.weight":
            arrays[name] = 1 + np.abs(noise)
        else:
            arrays[name] = noise * (shape[-1] ** -0.5 if len(shape) > 1 else 0.3)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def llama(
    *,
    fused: bool = False,
    bias: bool = True,
    tied: bool = False,
    n_experts: int = 0,
    rope_freqs: bool = True,
    n_embd: int = 80,
    n_heads: int = 6,
    n_kv: int = 2,
    dim: int = 24,
    n_ff: int = 104,
    **keys: Any,
) -> tuple[dict[str, Any], Arrays]:
    """Return metadata and weights of a llama of two layers."""
    n_layers = 2
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": n_layers,
        "llama.context_length": 256,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv,
        "llama.attention.key_length": dim,
        "llama.attention.value_length": dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 5000.0,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, n_embd),
        "output_norm.weight": (n_embd,),
    }
    if rope_freqs:
        shapes["rope_freqs.weight"] = (dim // 2,)
    if not tied:
        shapes["output.weight"] = (N_VOCAB, n_embd)
    for il in range(n_layers):
        wide = {"attn_q": n_heads * dim, "attn_k": n_kv * dim, "attn_v": n_kv * dim}
        parts = {"attn_qkv": sum(wide.values())} if fused else wide
        mats = {name: (width, n_embd) for name, width in parts.items()}
        mats["attn_output"] = (n_embd, n_heads * dim)
        if n_experts == 0:
            mats |= {"ffn_gate": (n_ff, n_embd), "ffn_up": (n_ff, n_embd)}
            mats["ffn_down"] = (n_embd, n_ff)
        blk = {f"{name}.weight": shape for name, shape in mats.items()}
        if bias:
            blk |= {f"{name}.bias": (shape[0],) for name, shape in mats.items()}
        if n_experts:
            blk["ffn_gate_inp.weight"] = (n_experts, n_embd)
            blk["ffn_gate_exps.weight"] = blk["ffn_up_exps.weight"] = (n_experts, n_ff, n_embd)
            blk["ffn_down_exps.weight"] = (n_experts, n_embd, n_ff)
        blk |= {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)}
        shapes |= {f"blk.{il}.{name}": shape for name, shape in blk.items()}
    if n_experts:
        metadata |= {"llama.expert_count": n_experts, "llama.expert_used_count": 2}
    return metadata | prefixed("llama", keys), random_arrays(shapes)


def gemma3(
    *,
    n_embd: int = 48,
    n_heads: int = 4,
    n_kv: int = 2,
    dim: int = 28,
    n_ff: int = 72,
    **keys: Any,
) -> tuple[dict[str, Any], Arrays]:
    """Return metadata and weights of a gemma3: windowed, global, windowed layer; window 4."""
    n_layers = 3
    metadata = {
        "general.architecture": "gemma3",
        "gemma3.block_count": n_layers,
        "gemma3.context_length": 256,
        "gemma3.embedding_length": n_embd,
        "gemma3.feed_forward_length": n_ff,
        "gemma3.attention.head_count": n_heads,
        "gemma3.attention.head_count_kv": n_kv,
        "gemma3.attention.key_length": dim,
        "gemma3.attention.value_length": dim,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.attention.sliding_window": 4,
        "gemma3.attention.sliding_window_pattern": 2,
        "gemma3.rope.freq_base": 100000.0,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
        "gemma3.final_logit_softcapping": 3.0,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, n_embd),
        "output_norm.weight": (n_embd,),
    }
    for il in range(n_layers):
        blk: dict[str, tuple[int, ...]] = {
            "attn_q.weight": (n_heads * dim, n_embd),
            "attn_k.weight": (n_kv * dim, n_embd),
            "attn_v.weight": (n_kv * dim, n_embd),
            "attn_q_norm.weight": (dim,),
            "attn_k_norm.weight": (dim,),
            "attn_output.weight": (n_embd, n_heads * dim),
            "ffn_gate.weight": (n_ff, n_embd),
            "ffn_up.weight": (n_ff, n_embd),
            "ffn_down.weight": (n_embd, n_ff),
        }
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            blk[f"{name}.weight"] = (n_embd,)
        shapes |= {f"blk.{il}.{name}": shape for name, shape in blk.items()}
    return metadata | prefixed("gemma3", keys), random_arrays(shapes)


def lfm2(
    *,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv: int = 2,
    n_ff: int = 88,
    n_taps: int = 3,
    bias: bool = False,
    layers: str = "cacc",
    n_experts: int = 0,
    **keys: Any,
) -> tuple[dict[str, Any], Arrays]:
    """Return metadata and weights of an lfm2 of these layers: c convolves, a attends.

    With experts, in all layers but the first, it is an lfm2moe.
    """
    arch = "lfm2moe" if n_experts else "lfm2"
    dim = n_embd // n_heads
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": len(layers),
        f"{arch}.context_length": 256,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.feed_forward_length": n_ff,
        f"{arch}.attention.head_count": n_heads,
        f"{arch}.attention.head_count_kv": [n_kv if kind == "a" else 0 for kind in layers],
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 100000.0,
        f"{arch}.shortconv.l_cache": n_taps,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, n_embd),
        "token_embd_norm.weight": (n_embd,),
    }
    for il, kind in enumerate(layers):
        blk: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (n_embd,),
            "ffn_norm.weight": (n_embd,),
            **mlp_shapes(n_embd, n_ff, 0),
        }
        if kind == "a":
            blk |= {"attn_q.weight": (n_embd, n_embd), "attn_output.weight": (n_embd, n_embd)}
            blk |= {f"attn_{kv}.weight": (n_kv * dim, n_embd) for kv in "kv"}
            blk |= {f"attn_{qk}_norm.weight": (dim,) for qk in "qk"}
        else:
            parts = {"conv": (n_embd, n_taps), "in_proj": (3 * n_embd, n_embd)}
            parts |= {"out_proj": (n_embd, n_embd)}
            blk |= {f"shortconv.{name}.weight": shape for name, shape in parts.items()}
            if bias:
                blk |= {f"shortconv.{name}.bias": shape[:1] for name, shape in parts.items()}
        if n_experts and il > 0:
            for name in ("gate", "up", "down"):
                blk[f"ffn_{name}_exps.weight"] = (n_experts, *blk.pop(f"ffn_{name}.weight"))
            blk |= {"ffn_gate_inp.weight": (n_experts, n_embd), "exp_probs_b.bias": (n_experts,)}
        shapes |= {f"blk.{il}.{name}": shape for name, shape in blk.items()}
    if n_experts:
        metadata |= {f"{arch}.expert_count": n_experts, f"{arch}.expert_used_count": 2}
        metadata |= {f"{arch}.expert_feed_forward_length": n_ff, f"{arch}.expert_gating_func": 2}
        metadata |= {f"{arch}.leading_dense_block_count": 1}
    return metadata | prefixed(arch, keys), random_arrays(shapes)


def qwen35(
    *,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv: int = 2,
    dim: int = 24,
    n_ff: int = 88,
    k_heads: int = 2,
    v_heads: int = 4,
    key_dim: int = 10,
    value_dim: int = 18,
    n_taps: int = 4,
    layers: str = "rar",
    n_experts: int = 0,
    **keys: Any,
) -> tuple[dict[str, Any], Arrays]:
    """Return metadata and weights of a qwen35 of these layers: r recurs, a attends.

    With experts it is a qwen35moe, whose shared one is wider than the others.
    """
    arch = "qwen35moe" if n_experts else "qwen35"
    inner, n_conv = v_heads * value_dim, 2 * k_heads * key_dim + v_heads * value_dim
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": len(layers),
        f"{arch}.context_length": 256,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.feed_forward_length": n_ff,
        f"{arch}.attention.head_count": n_heads,
        f"{arch}.attention.head_count_kv": n_kv,
        f"{arch}.attention.key_length": dim,
        f"{arch}.attention.value_length": dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.attention.recurrent_layers": [kind == "r" for kind in layers],
        f"{arch}.rope.freq_base": 100000.0,
        f"{arch}.rope.dimension_count": dim // 2,
        f"{arch}.ssm.conv_kernel": n_taps,
        f"{arch}.ssm.state_size": key_dim,
        f"{arch}.ssm.group_count": k_heads,
        f"{arch}.ssm.time_step_rank": v_heads,
        f"{arch}.ssm.inner_size": inner,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, n_embd),
        "output.weight": (N_VOCAB, n_embd),
        "output_norm.weight": (n_embd,),
    }
    for il, kind in enumerate(layers):
        blk: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (n_embd,),
            "post_attention_norm.weight": (n_embd,),
            **mlp_shapes(n_embd, n_ff, n_experts),
        }
        if kind == "a":
            blk |= {f"attn_{kv}.weight": (n_kv * dim, n_embd) for kv in "kv"}
            blk |= {f"attn_{qk}_norm.weight": (dim,) for qk in "qk"}
            blk["attn_q.weight"] = (2 * n_heads * dim, n_embd)
            blk["attn_output.weight"] = (n_embd, n_heads * dim)
        else:
            blk |= {f"ssm_{gate}.weight": (v_heads, n_embd) for gate in ("alpha", "beta")}
            blk |= {"attn_qkv.weight": (n_conv, n_embd), "attn_gate.weight": (inner, n_embd)}
            blk |= {"ssm_conv1d.weight": (n_conv, n_taps), "ssm_out.weight": (n_embd, inner)}
            blk |= {"ssm_a": (v_heads,), "ssm_dt.bias": (v_heads,)}
            blk["ssm_norm.weight"] = (value_dim,)
        if n_experts:
            blk["ffn_gate_inp_shexp.weight"] = (n_embd,)
        shapes |= {f"blk.{il}.{name}": shape for name, shape in blk.items()}
    if n_experts:
        del metadata[f"{arch}.feed_forward_length"]
        metadata |= {f"{arch}.expert_count": n_experts, f"{arch}.expert_used_count": 2}
        metadata |= {f"{arch}.expert_feed_forward_length": n_ff}
        metadata |= {f"{arch}.expert_shared_feed_forward_length": n_ff + 8}
    arrays = random_arrays(shapes)
    return metadata | prefixed(arch, keys), {
        name: -np.exp(array) if name.endswith("ssm_a") else array for name, array in arrays.items()
    }


def qwen35moe(**options: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a qwen35 with experts."""
    return qwen35(n_experts=5, **options)


def granitehybrid(
    *,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv: int = 2,
    n_ff: int = 88,
    heads: int = 4,
    groups: int = 2,
    dim: int = 18,
    state: int = 9,
    n_taps: int = 4,
    layers: str = "rar",
    n_experts: int = 0,
    **keys: Any,
) -> tuple[dict[str, Any], Arrays]:
    """Return metadata and weights of a granitehybrid of these layers: r recurs, a attends."""
    arch, inner, shared = "granitehybrid", heads * dim, groups * state
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": len(layers),
        f"{arch}.context_length": 256,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.feed_forward_length": n_ff,
        f"{arch}.attention.head_count": n_heads,
        f"{arch}.attention.head_count_kv": [n_kv if kind == "a" else 0 for kind in layers],
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.attention.scale": 0.2,
        f"{arch}.embedding_scale": 3.0,
        f"{arch}.residual_scale": 0.3,
        f"{arch}.logit_scale": 2.0,
        f"{arch}.rope.scaling.finetuned": False,
        f"{arch}.ssm.conv_kernel": n_taps,
        f"{arch}.ssm.state_size": state,
        f"{arch}.ssm.group_count": groups,
        f"{arch}.ssm.time_step_rank": heads,
        f"{arch}.ssm.inner_size": inner,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, n_embd),
        "output_norm.weight": (n_embd,),
    }
    for il, kind in enumerate(layers):
        blk: dict[str, tuple[int, ...]] = {f"{n}_norm.weight": (n_embd,) for n in ("attn", "ffn")}
        blk |= mlp_shapes(n_embd, n_ff, n_experts)
        if kind == "a":
            blk |= {f"attn_{kv}.weight": (n_kv * n_embd // n_heads, n_embd) for kv in "kv"}
            blk |= {f"attn_{name}.weight": (n_embd, n_embd) for name in ("q", "output")}
        else:
            blk["ssm_in.weight"] = (2 * inner + 2 * shared + heads, n_embd)
            blk["ssm_conv1d.weight"] = (inner + 2 * shared, n_taps)
            blk |= {"ssm_conv1d.bias": (inner + 2 * shared,), "ssm_dt.bias": (heads,)}
            blk |= {"ssm_a": (heads, 1), "ssm_d": (heads, 1), "ssm_out.weight": (n_embd, inner)}
            blk["ssm_norm.weight"] = (groups, inner // groups)
        shapes |= {f"blk.{il}.{name}": shape for name, shape in blk.items()}
    if n_experts:
        metadata |= {f"{arch}.expert_count": n_experts, f"{arch}.expert_used_count": 2}
        metadata |= {f"{arch}.expert_shared_feed_forward_length": n_ff + 8}
    arrays = random_arrays(shapes)
    return metadata | prefixed(arch, keys), {
        name: -np.exp(array) if name.endswith("ssm_a") else array for name, array in arrays.items()
    }


def mlp_shapes(n_embd: int, n_ff: int, n_experts: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an MLP; with experts, of theirs and of a wider one all rows meet."""
    plain: dict[str, tuple[int, ...]] = {
        f"ffn_{name}.weight": shape
        for name, shape in {
            "gate": (n_ff, n_embd),
            "up": (n_ff, n_embd),
            "down": (n_embd, n_ff),
        }.items()
    }
    if not n_experts:
        return plain
    wider = mlp_shapes(n_embd, n_ff + 8, 0)
    return {
        "ffn_gate_inp.weight": (n_experts, n_embd),
        **{name.replace(".", "_exps."): (n_experts, *shape) for name, shape in plain.items()},
        **{name.replace(".", "_shexp."): shape for name, shape in wider.items()},
    }


def prefixed(arch: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Turn attention__key_length=5 into {"<arch>.attention.key_length": 5}."""
    return {f"{arch}.{key.replace('__', '.')}": value for key, value in keys.items()}


def open_model(path: Path, metadata: dict[str, Any], arrays: dict[str, Any]) -> GgufFile:
    """Write a model file (a value None drops the key) and open it."""
    kept = {key: value for key, value in metadata.items() if value is not None}
    return open_gguf(write_gguf(path / "tiny.gguf", kept, arrays))
