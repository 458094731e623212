"""Configurations of hybrids with Mamba-2: what they become, and what no file can say is refused."""

from pathlib import Path
from typing import Any

import pytest

from edgeinfer.convert.config import Config, read_config
from edgeinfer.convert.falcon_h1 import FALCON_H1
from edgeinfer.convert.families import family_of
from edgeinfer.convert.mamba2 import mamba2_keys
from edgeinfer.errors import ModelFormatError

SIZES = """
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 256, "vocab_size": 301, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "mamba_d_conv": 4, "mamba_d_state": 12, "mamba_n_groups": 2, "mamba_n_heads": 8
"""


def config(folder: Path, *more: str, architecture: str = "FalconH1ForCausalLM") -> Config:
    """Return the configuration of these entries of a JSON object."""
    text = ", ".join([f'"architectures": ["{architecture}"]', SIZES, *more])
    (folder / "config.json").write_text(f"{{{text}}}")
    return read_config(folder)


@pytest.mark.parametrize("limit", ["null", "[0.0, Infinity]", '[0.0, {"__float__": "Infinity"}]'])
def test_a_time_step_without_limits_may_be_written_in_any_way(tmp_path: Path, limit: str) -> None:
    keys = mamba2_keys(config(tmp_path, f'"time_step_limit": {limit}'), 128)
    assert {key.key: key.value for key in keys} == {
        ".ssm.conv_kernel": 4,
        ".ssm.state_size": 12,
        ".ssm.group_count": 2,
        ".ssm.time_step_rank": 8,
        ".ssm.inner_size": 128,
    }


@pytest.mark.parametrize("limit", ["[0.0, 0.1]", "[0.001, Infinity]", "0.0", "[]"])
def test_a_limit_of_the_time_step_is_refused(tmp_path: Path, limit: str) -> None:
    with pytest.raises(ModelFormatError, match="time_step_limit"):
        mamba2_keys(config(tmp_path, f'"time_step_limit": {limit}'), 128)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('"mamba_rms_norm": true, "mamba_norm_before_gate": true', "mamba_norm_before_gate"),
        ('"mamba_d_ssm": 0', "mamba_d_ssm"),
    ],
)
def test_what_no_file_can_say_of_falcon_h1_is_refused(
    tmp_path: Path, entry: str, said: str
) -> None:
    with pytest.raises(ModelFormatError, match=said):
        FALCON_H1.keys(config(tmp_path, entry))


@pytest.mark.parametrize("values", ["[Infinity, 1.0]", "[1.0]", '["1", 1.0]'])
def test_multipliers_are_finite_numbers(tmp_path: Path, values: str) -> None:
    c = config(tmp_path, f'"mlp_multipliers": {values}')
    with pytest.raises(ModelFormatError, match="mlp_multipliers"):
        c.numbers("mlp_multipliers", c.raw["mlp_multipliers"], 2)


MAMBA, ATTENTION = '["mamba", "attention"]', '["attention", "attention"]'


@pytest.mark.parametrize(
    ("types", "n_experts", "arch"),
    [
        (MAMBA, 4, "granitehybrid"),
        (MAMBA, 0, "granitehybrid"),
        ("null", 0, "granitehybrid"),
        (ATTENTION, 4, "granitemoe"),
        (ATTENTION, 0, "granite"),
    ],
)
def test_a_granite_hybrid_is_what_its_layers_are(
    tmp_path: Path, types: str, n_experts: int, arch: Any
) -> None:
    more = (f'"layer_types": {types}', f'"num_local_experts": {n_experts}')
    c = config(tmp_path, *more, architecture="GraniteMoeHybridForCausalLM")
    assert family_of(c).arch == arch


NEMOTRON = (
    '"mamba_num_heads": 6, "mamba_head_dim": 8, "conv_kernel": 4, "mlp_hidden_act": "relu2"',
)
NEMOTRON += ('"layer_norm_epsilon": 1e-5, "num_key_value_heads": 2',)


@pytest.mark.parametrize(
    "kinds", ['"hybrid_override_pattern": "*-"', '"layers_block_type": ["attention", "mlp"]']
)
def test_layers_of_nemotron_are_named_in_either_way(tmp_path: Path, kinds: str) -> None:
    c = config(tmp_path, *NEMOTRON, kinds, architecture="NemotronHForCausalLM")
    family = family_of(c)
    keys = {key.key: key.value for key in family.keys(c)}
    assert family.arch == "nemotron_h"
    assert list(keys[".attention.head_count_kv"]) == [2, 0]
    assert list(keys[".feed_forward_length"]) == [0, 96]


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ('"hybrid_override_pattern": "*-M"', "hybrid_override_pattern"),
        ('"hybrid_override_pattern": "*X"', "hybrid_override_pattern"),
        ('"layers_block_type": ["attention", "other"]', "layers_block_type"),
    ],
)
def test_unknown_layers_of_nemotron_are_refused(tmp_path: Path, kinds: str, said: str) -> None:
    c = config(tmp_path, *NEMOTRON, kinds, architecture="NemotronHForCausalLM")
    with pytest.raises(ModelFormatError, match=said):
        family_of(c).keys(c)
