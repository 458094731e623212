"""Say how Granite models become GGUF: dense ones, those of experts, and hybrids with Mamba-2.

A hybrid without a layer that recurs is written as one of the others, which it then is.
"""

from dataclasses import replace

import numpy as np

from edgeinfer.convert.config import FULL, LINEAR, Config
from edgeinfer.convert.delta_net import gate_up
from edgeinfer.convert.family import PAIRED, Family, Split
from edgeinfer.convert.keys import Keys, attending_keys, base_keys, expert_keys, f32, flag, u32
from edgeinfer.convert.mamba2 import CHANGES, RENAMES, mamba2_keys
from edgeinfer.convert.rotation import rope_keys, rope_of
from edgeinfer.convert.weights import Weights, reordered

_SHARED = "shared_intermediate_size"


def hybrid(c: Config) -> Family:
    """Return the family of a hybrid's configuration, as its layers and its MLP are."""
    family = replace(MOE if _has_experts(c) else _ALONE, keys=_hybrid)
    if not _recurs(c):
        return family
    return replace(
        family,
        arch="granitehybrid",
        renames=(*family.renames, *RENAMES),
        changes=(*family.changes, *CHANGES),
    )


def _hybrid(c: Config) -> Keys:
    c.expect("position_embedding_type", "rope", "nope", default="nope")
    turns = c.raw.get("position_embedding_type") == "rope"
    keys = _moe(c) if _has_experts(c) else _keys(c, c.values.integer(_SHARED, least=1))
    keys.append(flag(".rope.scaling.finetuned", turns))
    if not _recurs(c):
        return keys
    inner = c.values.integer("mamba_expand", 2, least=1) * c.values.integer("hidden_size", least=1)
    return [*attending_keys(c, keys, _kinds(c)), *mamba2_keys(c, inner)]


def _dense(c: Config) -> Keys:
    return _keys(c, c.values.integer("intermediate_size", least=1))


def _moe(c: Config) -> Keys:
    n_ff = c.values.integer("intermediate_size", least=1)
    n_shared = c.values.integer(_SHARED, 0, least=0)
    shared = [u32(".expert_shared_feed_forward_length", n_shared)] if n_shared else []
    return [*_keys(c, n_ff), *expert_keys(c, n_ff=n_ff), *shared]


def _keys(c: Config, n_ff: int) -> Keys:
    c.expect("hidden_act", "silu")
    number = c.values.number
    return [
        *base_keys(c, n_ff=n_ff),
        *rope_keys(c, rope_of(c, theta=10000.0)),
        f32(".attention.scale", number("attention_multiplier", above=0.0)),
        f32(".embedding_scale", number("embedding_multiplier", above=0.0)),
        f32(".residual_scale", number("residual_multiplier", above=0.0)),
        f32(".logit_scale", number("logits_scaling", above=0.0)),
    ]


def _has_experts(c: Config) -> bool:
    return c.values.integer("num_local_experts", 8, least=0) > 0


def _kinds(c: Config) -> list[str]:
    return c.layer_types([LINEAR] * c.n_layers, known=(FULL, LINEAR))


def _recurs(c: Config) -> bool:
    return any(kind != FULL for kind in _kinds(c))


def _halves(behind: str) -> Split:
    """Take a matrix apart that has the rows of the gate before those of the rest."""

    def split(weights: Weights, c: Config) -> dict[str, Weights]:
        n = weights.n_rows // 2
        return {
            f"ffn_{name}{behind}": reordered(weights, rows)
            for name, rows in (("gate", np.arange(n)), ("up", np.arange(n, weights.n_rows)))
        }

    return split


DENSE = Family("granite", _dense, changes=PAIRED)
MOE = Family(
    "granitemoe",
    _moe,
    renames=(
        (r"\.block_sparse_moe\.input_linear\.", ".mlp.experts.gate_proj."),
        (r"\.shared_mlp\.input_linear\.", ".mlp.shared_expert.gate_proj."),
    ),
    splits=(("ffn_gate_exps", gate_up), ("ffn_gate_shexp", _halves("_shexp"))),
    changes=PAIRED,
)
# What hybrids call shared is all there is where they have no experts.
_ALONE = replace(
    DENSE,
    renames=(
        (r"\.shared_mlp\.input_linear\.", ".mlp.gate_proj."),
        (r"\.shared_mlp\.output_linear\.", ".mlp.down_proj."),
    ),
    splits=(("ffn_gate", _halves("")),),
)
