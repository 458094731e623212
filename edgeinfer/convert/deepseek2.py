"""Say how DeepSeek V2 and V3 become GGUF: latent attention with its matrices parted."""

import numpy as np

from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM
from edgeinfer.convert.config import Config
from edgeinfer.convert.keys import Keys, base_keys, expert_keys, f32, flag, u32
from edgeinfer.convert.rotation import Rope, rope_keys, rope_of, yarn_keys
from edgeinfer.convert.weights import Weights, part, reordered, reshaped, stacked, transposed
from edgeinfer.program.rope import yarn_mscale

RENAMES = ((r"\.e_score_correction_bias$", ".e_score_correction.bias"),)
NEXT_TOKENS = r"model\.layers\.61\."  # V3's layer that guesses further tokens
REPLACED = ("head_count_kv", "key_length", "value_length")
SOFTMAX, SIGMOID = 1, 2


def deepseek_v2_keys(c: Config) -> Keys:
    """Return the metadata of V2: experts scored by softmax, groups by their best."""
    c.expect("norm_topk_prob", False, default=False)
    c.expect("scoring_func", "softmax", default="softmax")
    c.expect("topk_method", "greedy", "group_limited_greedy", default="greedy")
    is_grouped = c.raw.get("topk_method") == "group_limited_greedy"
    return [*_keys(c, is_grouped=is_grouped), u32(".expert_gating_func", SOFTMAX)]


def deepseek_v3_keys(c: Config) -> Keys:
    """Return the metadata of V3: experts scored by sigmoid, groups by their best two."""
    c.expect("topk_method", "noaux_tc", default="noaux_tc")
    c.expect("scoring_func", "sigmoid", default="sigmoid")
    c.expect("rope_interleave", True, default=True)
    return [
        *_keys(c, is_grouped=True),
        u32(".expert_gating_func", SIGMOID),
        flag(".expert_weights_norm", c.values.flag("norm_topk_prob", True)),
    ]


def _keys(c: Config, *, is_grouped: bool) -> Keys:
    c.expect("hidden_act", "silu", default="silu")
    c.expect("moe_layer_freq", 1, default=1)
    integer = c.values.integer
    rank, n_rot = integer("kv_lora_rank", least=1), _turned_dim(c)
    q_rank = integer("q_lora_rank", None, least=1)
    keys = [
        *(key for key in base_keys(c) if not key.key.endswith(REPLACED)),
        u32(".attention.head_count_kv", 1),
        u32(".attention.key_length", rank + n_rot),
        u32(".attention.value_length", rank),
        u32(".attention.key_length_mla", integer("qk_nope_head_dim", least=1) + n_rot),
        u32(".attention.value_length_mla", integer("v_head_dim", least=1)),
        u32(".attention.kv_lora_rank", rank),
        *([] if q_rank is None else [u32(".attention.q_lora_rank", q_rank)]),
        *_rope_keys(c, rope_of(c, theta=10000.0, head_dim=n_rot)),
        *expert_keys(c, n_ff=integer("moe_intermediate_size", least=1)),
        u32(".expert_shared_count", integer("n_shared_experts", least=0)),
        u32(".leading_dense_block_count", integer("first_k_dense_replace", 0, least=0)),
        f32(".expert_weights_scale", c.values.number("routed_scaling_factor", 1.0, above=0.0)),
    ]
    if is_grouped:
        keys.append(u32(".expert_group_count", integer("n_group", least=1)))
        keys.append(u32(".expert_group_used_count", integer("topk_group", least=1)))
    return keys


def _turned_dim(c: Config) -> int:
    return c.values.integer("qk_rope_head_dim", least=1, most=MAX_HEAD_DIM)


def _rope_keys(c: Config, rope: Rope) -> Keys:
    """Return the keys of a RoPE; with YaRN scores are scaled, and cosines and sines by the rest."""
    if rope.kind != "yarn":
        return rope_keys(c, rope)
    number = rope.values.number
    factor, of_all = number("factor", above=0.0), number("mscale_all_dim", 0.0, least=0.0)
    usual = 1.0 if of_all else yarn_mscale(factor)
    mscale = number("mscale", 0.0, least=0.0)
    found = yarn_mscale(factor)
    if mscale and of_all:
        found = yarn_mscale(factor, mscale) / yarn_mscale(factor, of_all)
    found = number("attention_factor", found, above=0.0)
    return [
        u32(".rope.dimension_count", rope.n_rot),
        f32(".rope.freq_base", rope.theta),
        *yarn_keys(c, rope),
        f32(".rope.scaling.yarn_log_multiplier", 0.1 * of_all),  # as files of this family have it
        *([] if found == usual else [f32(".rope.scaling.yarn_attn_factor", found)]),
    ]


def keys_and_values(weights: Weights, c: Config) -> dict[str, Weights]:
    """Part each head's rows that make keys from those that make values; turn the former."""
    n_still, dim = (c.values.integer(f"{name}_head_dim", least=1) for name in ("qk_nope", "v"))
    if weights.n_rows != c.n_heads * (n_still + dim):
        raise c.error("v_head_dim", f"{dim} (need heads of {weights.n_rows / c.n_heads} in all)")
    whole = reshaped(weights, c.n_heads, n_still + dim, weights.n_columns)
    heads = [part(whole, h) for h in range(c.n_heads)]
    still, rest = np.arange(n_still), np.arange(n_still, heads[0].n_rows)
    return {
        "attn_k_b": stacked([transposed(reordered(head, still)) for head in heads]),
        "attn_v_b": stacked([reordered(head, rest) for head in heads]),
    }
