"""Configurations of Gemma 4 of two ages say the same, and what a file cannot say is refused."""

from typing import Any

import pytest

from edgeinfer.convert.config import Config
from edgeinfer.convert.gemma4 import gemma4_factors, gemma4_keys
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.metadata import Metadata

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 256,
    "vocab_size": 301,
    "vocab_size_per_layer_input": 301,
    "rms_norm_eps": 1e-6,
    "sliding_window": 16,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "attention_k_eq_v": True,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}
STATED = {"global_head_dim": 40, "num_global_key_value_heads": 1}
EACH = {"per_layer_config": {"5": {"head_dim": 40, "num_key_value_heads": 1}}}


def config(**more: Any) -> Config:
    raw = BASE | more
    values = {key: value for key, value in raw.items() if not isinstance(value, dict | list)}
    return Config("Gemma4ForCausalLM", raw, Metadata(values, where="config.json"))


def keys_of(**more: Any) -> dict[str, Any]:
    """Return the keys; arrays as lists."""
    found = {entry.key: entry.value for entry in gemma4_keys(config(**more))}
    return {key: v.tolist() if hasattr(v, "tolist") else v for key, v in found.items()}


def test_sizes_of_global_layers_are_found_where_either_age_has_them() -> None:
    found = keys_of(**STATED)
    assert found == keys_of(**EACH)
    assert found[".attention.key_length"] == 40
    assert found[".attention.key_length_swa"] == 24
    assert found[".attention.head_count_kv"] == [2, 2, 2, 2, 2, 1]
    assert found[".feed_forward_length"] == [96] * 4 + [192] * 2
    assert found[".attention.sliding_window_pattern"] == [1, 1, 1, 1, 1, 0]
    assert found[".rope.dimension_count"] == 40


def test_heads_of_keys_are_stated_only_where_values_are_keys() -> None:
    counts = keys_of(**STATED, attention_k_eq_v=False)[".attention.head_count_kv"]
    assert counts == [2] * 6


def test_a_share_of_the_pairs_turns_and_the_others_stand_still() -> None:
    factors = gemma4_factors(config(**STATED))["rope_freqs.weight"]
    assert factors.rows(0, 20).ravel().tolist() == [1.0] * 5 + [pytest.approx(1e30)] * 15


@pytest.mark.parametrize(
    "more",
    [
        {"per_layer_config": {"0": {"head_dim": 40}, "5": {"head_dim": 40}}},
        {
            "per_layer_config": {"2": {"head_dim": 40}, "5": {"head_dim": 48}},
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        },
        {"per_layer_config": {"5": 40}},
        {"per_layer_config": [40]},
        {"use_bidirectional_attention": "all"},
        {"vocab_size_per_layer_input": 300},
        {"num_kv_shared_layers": 6},
    ],
)
def test_what_a_file_cannot_say_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError):
        keys_of(**(STATED | more))
