"""Say how the delta-nets of Qwen 3.5 and 3 Next become GGUF: their keys, the order of their heads.

transformers lets neighbouring value heads share a key head, files of 3.5 every so-manieth: value
heads change places wherever they are rows or columns. Nothing changes where there are as many of
both. Files of 3 Next keep the order; what stands there key head by key head is taken apart.
"""

from dataclasses import replace

import numpy as np

from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM, MAX_HEADS
from edgeinfer.convert.config import FULL, LINEAR, Config
from edgeinfer.convert.family import TEXT_PREFIX, Change, Family, plus_one
from edgeinfer.convert.keys import Keys, base_keys, counts, expert_keys, flags, u32
from edgeinfer.convert.rotation import rope_keys, rope_of
from edgeinfer.convert.weights import (
    Index,
    Weights,
    changed,
    part,
    reordered,
    reshaped,
    stacked,
)
from edgeinfer.writer.entries import Entry

RENAMES = ((r"\.linear_attn\.dt_bias$", ".linear_attn.dt_proj.bias"),)
_HEADS = "linear_num_value_heads"


def delta_net_moe_keys(c: Config) -> Keys:
    """Return the same with experts for the MLP."""
    return [*_experts_keys(c), _sections(c)]


def next_keys(c: Config) -> Keys:
    """Return the metadata of Qwen 3 Next, all of whose layers have experts."""
    c.expect("decoder_sparse_step", 1, default=1)
    c.expect("mlp_only_layers", [], default=[])
    c.expect("attention_bias", False, default=False)
    return _experts_keys(c)


def _experts_keys(c: Config) -> Keys:
    n_ff = c.values.integer("moe_intermediate_size", least=1)
    n_shared = c.values.integer("shared_expert_intermediate_size", least=1)
    return [
        *_net_keys(c, n_ff=n_ff),
        *expert_keys(c, n_ff=n_ff),
        u32(".expert_shared_feed_forward_length", n_shared),
    ]


def delta_net_keys(c: Config) -> Keys:
    """Return the metadata of attention among gated delta-nets."""
    return [*_net_keys(c), _sections(c)]


def _sections(c: Config) -> Entry:
    """Return how many of the elements that turn do so by which axis of a picture."""
    sections = rope_of(c).raw.get("mrope_section", [11, 11, 10])
    axes = [int(n) for n in c.numbers("mrope_section", sections, 3)]
    return counts(".rope.dimension_sections", [*axes, 0])


def _net_keys(c: Config, *, n_ff: int | None = None) -> Keys:
    c.expect("hidden_act", "silu")
    rope, integer = rope_of(c, partial=0.25), c.values.integer
    interval = integer("full_attention_interval", 4, least=1)
    default = [LINEAR if (i + 1) % interval else FULL for i in range(c.n_layers)]
    kinds = c.layer_types(default, known=(FULL, LINEAR))
    v_heads = integer(_HEADS, least=1, most=MAX_HEADS)
    value_dim = integer("linear_value_head_dim", least=1, most=MAX_HEAD_DIM)
    return [
        *base_keys(c, n_ff=n_ff),
        *rope_keys(c, rope),
        flags(".attention.recurrent_layers", [kind != FULL for kind in kinds]),
        u32(".ssm.conv_kernel", integer("linear_conv_kernel_dim", least=2)),
        u32(".ssm.state_size", integer("linear_key_head_dim", least=1)),
        u32(".ssm.group_count", integer("linear_num_key_heads", least=1)),
        u32(".ssm.time_step_rank", v_heads),
        u32(".ssm.inner_size", v_heads * value_dim),
    ]


def _order(c: Config) -> Index:
    """Return which of transformers' value heads stands at each place of the file."""
    v_heads, k_heads = c.values.integer(_HEADS), c.values.integer("linear_num_key_heads")
    if v_heads % k_heads:
        raise c.error(_HEADS, f"{v_heads} (need a multiple of the {k_heads} key heads)")
    return np.arange(v_heads).reshape(k_heads, -1).T.ravel()


def _elements(c: Config) -> Index:
    """Return the same for the elements of all value heads."""
    dim = c.values.integer("linear_value_head_dim")
    return (_order(c)[:, None] * dim + np.arange(dim)).ravel()


def _placed(weights: Weights, order: Index, c: Config) -> Weights:
    if weights.n_rows != len(order):
        raise c.error(_HEADS, f"{len(order)} rows for them (need {weights.n_rows}, as the tensor)")
    return reordered(weights, order)


def _heads(weights: Weights, c: Config) -> Weights:
    return _placed(weights, _order(c), c)


def _rows(weights: Weights, c: Config) -> Weights:
    return _placed(weights, _elements(c), c)


def _columns(weights: Weights, c: Config) -> Weights:
    order = _elements(c)
    if weights.n_columns != len(order):
        raise c.error(_HEADS, f"{len(order)} columns for them (need {weights.n_columns})")
    return changed(weights, lambda values: values[:, order])


def _behind_keys(weights: Weights, c: Config) -> Weights:
    """Reorder the values in rows of queries, keys and values."""
    n = weights.n_rows - len(_elements(c))
    if n < 0:
        raise c.error(_HEADS, f"{len(_elements(c))} rows for them (need at most {weights.n_rows})")
    return reordered(weights, np.concatenate([np.arange(n), n + _elements(c)]))


def _taps(weights: Weights, c: Config) -> Weights:
    """Do so with a convolution's channels, and take its axis of one channel away."""
    return _behind_keys(reshaped(weights, weights.shape[0], weights.shape[-1]), c)


def _decay(weights: Weights, c: Config) -> Weights:
    """Files hold minus the exponential of the logarithm that is trained."""
    return changed(_heads(weights, c), lambda values: -np.exp(values))


def gate_up(weights: Weights, c: Config) -> dict[str, Weights]:
    """Take experts apart that hold the rows of their gates before those of the rest."""
    n = weights.shape[1] // 2
    experts = [part(weights, i) for i in range(weights.shape[0])]
    return {
        f"ffn_{name}_exps": stacked([reordered(expert, rows) for expert in experts])
        for name, rows in (("gate", np.arange(n)), ("up", np.arange(n, weights.shape[1])))
    }


def _vector(weights: Weights, c: Config) -> Weights:
    return reshaped(weights, weights.shape[-1])


def by_part(weights: Weights, c: Config) -> dict[str, Weights]:
    """Take queries, keys, values and gates apart that stand key head by key head."""
    integer = c.values.integer
    k_heads, key_dim = integer("linear_num_key_heads"), integer("linear_key_head_dim")
    own = integer(_HEADS) // k_heads * integer("linear_value_head_dim")
    need = k_heads * 2 * (key_dim + own)
    if weights.n_rows != need:
        raise c.error(_HEADS, f"{need} rows for all heads (need {weights.n_rows}, as the tensor)")
    rows = np.arange(need).reshape(k_heads, -1)
    ends = np.cumsum([key_dim, key_dim, own])
    *mixed, gate = (part.ravel() for part in np.split(rows, ends, axis=1))
    return {
        "attn_qkv": reordered(weights, np.concatenate(mixed)),
        "attn_gate": reordered(weights, gate),
    }


NEXT_CHANGES: tuple[tuple[str, Change], ...] = (
    *((name, plus_one) for name in ("attn_*norm", "post_attention_norm", "output_norm")),
    ("ssm_conv1d", lambda weights, c: reshaped(weights, weights.shape[0], weights.shape[-1])),
    ("ssm_a", lambda weights, c: changed(weights, lambda values: -np.exp(values))),
    ("ffn_gate_inp_shexp", _vector),
)
CHANGES: tuple[tuple[str, Change], ...] = (
    *((name, plus_one) for name in ("attn_*norm", "post_attention_norm", "output_norm")),
    ("attn_qkv", _behind_keys),
    ("ssm_conv1d", _taps),
    ("attn_gate", _rows),
    ("ssm_alpha", _heads),
    ("ssm_beta", _heads),
    ("ssm_dt", _heads),
    ("ssm_a", _decay),
    ("ssm_out", _columns),
    ("ffn_gate_inp_shexp", _vector),
)

DENSE = Family(
    "qwen35",
    delta_net_keys,
    renames=(*TEXT_PREFIX, *RENAMES),
    changes=CHANGES,
    left_out=r"(model\.visual|mtp)\.",
)
MOE = replace(
    DENSE, arch="qwen35moe", keys=delta_net_moe_keys, splits=(("ffn_gate_up_exps", gate_up),)
)
NEXT = Family(
    "qwen3next",
    next_keys,
    renames=RENAMES,
    splits=(("ssm_in", by_part), ("ffn_gate_up_exps", gate_up)),
    changes=NEXT_CHANGES,
    left_out=r"mtp\.",
)
