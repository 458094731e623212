"""Say how Nemotron-H becomes GGUF: layers that attend, recur or are an MLP, perhaps of experts."""

from dataclasses import replace

from edgeinfer.convert.config import FULL, LINEAR, Config
from edgeinfer.convert.family import Family
from edgeinfer.convert.keys import Keys, base_keys, counts, expert_keys, f32, flag, u32
from edgeinfer.convert.mamba2 import CHANGES, RENAMES, mamba2_keys

# What a layer is, by the letters that older configurations have.
_LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
SIGMOID = 2  # of `expert_gating_func`


def nemotron(c: Config) -> Family:
    """Return the family of a configuration: whether its MLPs are experts."""
    return _MOE if "moe" in _kinds(c) else _DENSE


def _dense_keys(c: Config) -> Keys:
    return _keys(c, "mlp", c.values.integer("intermediate_size", least=1))


def _moe_keys(c: Config) -> Keys:
    c.expect("n_group", 1, default=1)
    n_ff = c.values.integer("moe_intermediate_size", least=1)
    shared = c.values.integer("moe_shared_expert_intermediate_size", least=1)
    return [
        *_keys(c, "moe", n_ff),
        *expert_keys(c, n_ff=n_ff),
        u32(".expert_shared_count", c.values.integer("n_shared_experts", 1, least=1)),
        u32(".expert_shared_feed_forward_length", shared),
        u32(".expert_gating_func", SIGMOID),
        f32(".expert_weights_scale", c.values.number("routed_scaling_factor", 1.0, above=0.0)),
        flag(".expert_weights_norm", c.values.flag("norm_topk_prob", True)),
    ]


def _keys(c: Config, mlp: str, n_ff: int) -> Keys:
    c.expect("mlp_hidden_act", "relu2")
    c.expect("mamba_hidden_act", "silu", default="silu")
    c.expect("sliding_window", None, default=None)
    kinds = _kinds(c)
    unknown = set(kinds) - {FULL, LINEAR, mlp}
    if unknown:
        raise c.error("layers_block_type", f"{min(unknown)} (need {FULL}, {LINEAR} or {mlp})")
    kv_heads = [c.n_kv_heads if kind == FULL else 0 for kind in kinds]
    own = {
        ".attention.head_count_kv": counts(".attention.head_count_kv", kv_heads),
        ".feed_forward_length": counts(
            ".feed_forward_length", [n_ff if kind == mlp else 0 for kind in kinds]
        ),
    }
    heads = c.values.integer("mamba_num_heads", least=1)
    eps = "layer_norm_epsilon"
    return [
        *(own.get(key.key, key) for key in base_keys(c, eps=eps, n_ff=n_ff)),
        f32(f".attention.{eps}", c.values.number(eps)),  # readers ask for it, though none is used
        *mamba2_keys(c, heads * c.values.integer("mamba_head_dim", least=1)),
    ]


def _kinds(c: Config) -> list[str]:
    letters = c.raw.get("hybrid_override_pattern")
    if not isinstance(letters, str):
        return c.layer_types(known=tuple(_LETTERS.values()))
    if len(letters) != c.n_layers or set(letters) - set(_LETTERS):
        known = " ".join(_LETTERS)
        raise c.error("hybrid_override_pattern", f"{letters} (need {c.n_layers} of {known})")
    return [_LETTERS[letter] for letter in letters]


_DENSE = Family("nemotron_h", _dense_keys, renames=RENAMES, changes=CHANGES)
_MOE = replace(
    _DENSE,
    arch="nemotron_h_moe",
    keys=_moe_keys,
    renames=(
        *RENAMES,
        (r"^backbone\.layers\.(\d+)\.mixer\.experts\.", r"model.layers.\1.mlp.experts."),
        (r"\.e_score_correction_bias$", ".e_score_correction.bias"),
    ),
)
