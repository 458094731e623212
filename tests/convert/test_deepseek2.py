"""What DeepSeek's configurations become: the magnitudes of YaRN, the parts of a matrix."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgeinfer.convert.config import Config
from edgeinfer.convert.deepseek2 import deepseek_v2_keys, deepseek_v3_keys, keys_and_values
from edgeinfer.convert.weights import Weights
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.metadata import Metadata

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "vocab_size": 301,
    "rms_norm_eps": 1e-6,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 40,
    "n_group": 4,
    "topk_group": 2,
}


def config(**more: Any) -> Config:
    raw = BASE | more
    values = {key: v for key, v in raw.items() if not isinstance(v, dict | list | None)}
    return Config("Deepseek", raw, Metadata(values, where="config.json"))


@pytest.mark.parametrize(
    ("mscales", "multiplier", "factor"),
    [
        ({"mscale": 0.707, "mscale_all_dim": 0.707}, 0.0707, None),
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, 0.05, 1.3689 / 1.1844),
        ({}, 0.0, None),
        ({"mscale_all_dim": 1.0}, 0.1, 1.3689),
        ({"attention_factor": 1.25}, 0.0, 1.25),
    ],
)
def test_magnitudes_of_yarn(mscales: dict[str, float], multiplier: float, factor: Any) -> None:
    yarn = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 16}
    keys = deepseek_v3_keys(config(rope_parameters=yarn | mscales))
    found = {entry.key: entry.value for entry in keys}
    assert found[".rope.scaling.yarn_log_multiplier"] == pytest.approx(multiplier)
    expected = None if factor is None else pytest.approx(factor, rel=1e-4)
    assert found.get(".rope.scaling.yarn_attn_factor") == expected


def test_groups_are_of_the_method_that_has_some() -> None:
    def groups(**more: Any) -> Any:
        found = {entry.key: entry.value for entry in deepseek_v2_keys(config(**more))}
        return found.get(".expert_group_count"), found[".expert_gating_func"]

    assert groups(topk_method="greedy") == (None, 1)
    assert groups(topk_method="group_limited_greedy") == (4, 1)


@pytest.mark.parametrize(
    "more", [{"norm_topk_prob": True}, {"topk_method": "other"}, {"scoring_func": "sigmoid"}]
)
def test_other_routing_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError):
        deepseek_v2_keys(config(**more))


def test_rows_of_keys_and_of_values_are_parted_in_each_head() -> None:
    both = np.arange(4 * 28 * 32, dtype=np.float32).reshape(4 * 28, 32)
    whole = Weights(both.shape, "F32", lambda rows: both[rows])
    parts = keys_and_values(whole, config())
    of_heads = both.reshape(4, 28, 32)
    for name, expected in (
        ("attn_k_b", of_heads[:, :16].swapaxes(1, 2)),
        ("attn_v_b", of_heads[:, 16:]),
    ):
        assert parts[name].shape == expected.shape
        found = parts[name].rows(0, parts[name].n_rows)
        assert (found == expected.reshape(found.shape)).all()
    with pytest.raises(ModelFormatError, match="v_head_dim"):
        keys_and_values(replace(whole, shape=(108, 32)), config())
