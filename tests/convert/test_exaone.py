"""EXAONE 4's windows are listed layer by layer, told by a period, or declared absent."""

from typing import Any

import pytest

from edgeinfer.convert.config import Config
from edgeinfer.convert.exaone import exaone4_keys
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.metadata import Metadata

BASE: dict[str, Any] = {
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "vocab_size": 301,
    "rms_norm_eps": 1e-5,
}
LISTED = ["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 3


def windows(**more: Any) -> tuple[int | None, list[int] | None]:
    """Return the window and which layers have it."""
    raw = BASE | more
    values = {key: v for key, v in raw.items() if isinstance(v, int | float | str)}
    config = Config("Exaone4ForCausalLM", raw, Metadata(values, where="config.json"))
    found = {entry.key: entry.value for entry in exaone4_keys(config)}
    layers = found.get(".attention.sliding_window_pattern")
    return found.get(".attention.sliding_window"), layers if layers is None else layers.tolist()


def test_listed_layers_count_whatever_the_period_says() -> None:
    found = windows(sliding_window=40, sliding_window_pattern="LLLG", layer_types=LISTED)
    assert found == (40, [1, 1, 0, 1, 1, 1])


def test_a_period_makes_its_last_layer_global() -> None:
    assert windows(sliding_window=40, sliding_window_pattern=3) == (40, [1, 1, 0, 1, 1, 0])
    assert windows() == (4096, [1, 1, 1, 0, 1, 1])


def test_null_is_no_window() -> None:
    assert windows(sliding_window=None, layer_types=LISTED) == (None, None)


def test_a_pattern_of_letters_alone_is_refused() -> None:
    with pytest.raises(ModelFormatError, match="sliding_window_pattern"):
        windows(sliding_window_pattern="LLLG")
