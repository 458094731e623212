"""Say what a row is, and what the configurations of several families have in common."""

from dataclasses import dataclass, field
from typing import Any

N_VOCAB = 301
SIZES: dict[str, Any] = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Row:
    """A model to be made: its architecture, its class, its configuration.

    `config` replaces or adds to SIZES. `n_ctx` is what the program is built for. `native` tells
    whether the native backend runs it, `peer` whether llama.cpp computes the same.
    """

    arch: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    n_ctx: int = 256
    native: bool = True
    peer: bool = True


def rope(kind: str = "default", theta: float = 10000.0, **more: Any) -> dict[str, Any]:
    """Return `rope_parameters` of a configuration."""
    return {"rope_type": kind, "rope_theta": theta, **more}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
WINDOWED = ["sliding_attention", "full_attention"]
GRANITE: dict[str, Any] = {
    "attention_multiplier": 0.1,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 4.0,
    "rope_parameters": rope(),
}
