"""The rows of Gemma: windows, norms behind what layers add; Gemma 4 with its experts, too."""

from typing import Any

from .row import N_VOCAB, WINDOWED, Row, rope

GEMMA4: dict[str, Any] = {
    "head_dim": 24,
    "global_head_dim": 40,
    "sliding_window": 40,
    "final_logit_softcapping": 3.0,
    "rope_parameters": {
        "sliding_attention": rope(),
        "full_attention": rope("proportional", 1e6, partial_rotary_factor=0.25),
    },
}

ROWS: dict[str, Row] = {
    "gemma3": Row(
        "gemma3",
        "Gemma3|Gemma3Text",
        {
            "num_hidden_layers": 4,
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "layer_types": WINDOWED * 2,
            "sliding_window": 40,
            "final_logit_softcapping": 3.0,
            "rope_parameters": {
                "sliding_attention": rope(),
                "full_attention": rope("linear", 1e6, factor=8.0),
            },
        },
    ),
    "gemma4": Row(
        "gemma4",
        "Gemma4|Gemma4Text",
        GEMMA4
        | {
            "num_hidden_layers": 7,
            # The last global layer with keys of its own is not the one before the shared ones.
            "layer_types": [WINDOWED[il in (1, 4, 6)] for il in range(7)],
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": N_VOCAB,
        },
        peer=False,  # it takes the layers before the shared ones for one of each kind, and ends
    ),
    "gemma4, adjacent": Row(
        "gemma4",
        "Gemma4|Gemma4Text",
        GEMMA4
        | {
            "num_hidden_layers": 6,
            "layer_types": WINDOWED * 3,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": N_VOCAB,
        },
    ),
    "gemma4, unified": Row(
        "gemma4",
        "Gemma4Unified|Gemma4UnifiedText",
        GEMMA4
        | {
            "num_hidden_layers": 3,
            "layer_types": [*WINDOWED, "full_attention"],
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
    ),
    "gemma4, experts": Row(
        "gemma4",
        "Gemma4|Gemma4Text",
        GEMMA4
        | {
            "num_hidden_layers": 4,
            "layer_types": WINDOWED * 2,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 5,
            "top_k_experts": 3,
            "moe_intermediate_size": 32,
        },
    ),
    "gemma2": Row(
        "gemma2",
        "Gemma2",
        {
            "num_hidden_layers": 4,
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "sliding_window": 40,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "rope_parameters": rope(),
        },
    ),
}
