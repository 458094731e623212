"""One row a family: a tiny model of it that transformers can make, with every feature on.

Sizes differ pairwise, windows are shorter than the text, and the text is longer than the context
that a scaled RoPE was trained for.
"""

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
LINEAR = "linear_attention"
YARN = {
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
LONGROPE = rope(
    "longrope",
    partial_rotary_factor=0.75,
    long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
    short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    original_max_position_embeddings=32,
)
PART = rope(partial_rotary_factor=0.25)
WINDOWED = ["sliding_attention", "full_attention"]

# Values are wider than keys, which llama.cpp does not take.
DELTA: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "layer_types": [LINEAR, "full_attention", LINEAR, LINEAR],
    "rope_parameters": rope(theta=30000.0, partial_rotary_factor=0.5, mrope_section=[2, 2, 2]),
}

DEEPSEEK: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 40,
    "routed_scaling_factor": 2.5,
}
GRANITE: dict[str, Any] = {
    "attention_multiplier": 0.1,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 4.0,
    "rope_parameters": rope(),
}
GRANITE_HYBRID: dict[str, Any] = GRANITE | {
    "num_hidden_layers": 4,
    "num_local_experts": 5,
    "num_experts_per_tok": 3,
    "shared_intermediate_size": 56,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 12,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
}
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

FALCON_H1: dict[str, Any] = {
    "head_dim": 24,
    "mamba_d_ssm": 48,
    "mamba_n_heads": 6,
    "mamba_n_groups": 2,
    "mamba_d_state": 12,
    "embedding_multiplier": 2.5,
    "lm_head_multiplier": 0.4,
    "key_multiplier": 0.7,
    "attention_in_multiplier": 1.3,
    "attention_out_multiplier": 0.6,
    "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.8,
    "mlp_multipliers": [1.4, 0.5],
    "ssm_multipliers": [0.9, 1.1, 0.8, 1.2, 0.7],
    "rope_parameters": rope(theta=1e11),
}

NEMOTRON: dict[str, Any] = {
    "num_hidden_layers": 5,
    "head_dim": 24,
    "mamba_num_heads": 6,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 12,
    "time_step_min": 1e-30,  # transformers takes it for a limit of the steps, as nobody else does
}

ROWS: dict[str, Row] = {
    "llama, biases, llama3 factors": Row(
        "llama",
        "Llama",
        {
            "head_dim": 24,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": rope("llama3", 5e5, factor=8.0, **LLAMA3),
        },
    ),
    "llama, tied, linear": Row(
        "llama",
        "Llama",
        {"tie_word_embeddings": True, "rope_parameters": rope("linear", factor=4.0)},
    ),
    "mixtral": Row("llama", "Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3}),
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
    "qwen35": Row("qwen35", "Qwen3_5|Qwen3_5Text", DELTA, peer=False),
    "qwen35moe": Row(
        "qwen35moe",
        "Qwen3_5Moe|Qwen3_5MoeText",
        DELTA
        | {
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 56,
        },
        peer=False,
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
    "deepseek2, lite": Row(
        "deepseek2",
        "DeepseekV2",
        DEEPSEEK
        | {
            "q_lora_rank": None,
            "first_k_dense_replace": 0,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.0,
            "rope_parameters": rope(),
        },
        peer=False,  # it knows a model without a rank of queries by its 26 or 27 layers
    ),
    "deepseek2, groups by their best": Row(
        "deepseek2",
        "DeepseekV2",
        DEEPSEEK
        | {
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": rope("yarn", **YARN, mscale=0.9, mscale_all_dim=0.5),
        },
        peer=False,  # it scores groups by their best two
    ),
    "deepseek2, groups by two": Row(
        "deepseek2",
        "DeepseekV3",
        DEEPSEEK
        | {
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "rope_parameters": rope("yarn", **YARN, mscale=1.0, mscale_all_dim=1.0),
        },
    ),
    "ernie4_5": Row(
        "ernie4_5",
        "Ernie4_5",
        {"head_dim": 24, "tie_word_embeddings": True, "rope_parameters": rope(theta=5e5)},
    ),
    "ernie4_5, biases": Row(
        "ernie4_5",
        "Ernie4_5",
        {"use_bias": True, "rope_parameters": rope("linear", 5e5, factor=4.0)},
        peer=False,  # its MLP has no biases
    ),
    "exaone4": Row(
        "exaone4",
        "Exaone4",
        {
            "num_hidden_layers": 5,
            "head_dim": 24,
            "sliding_window": 40,
            "rope_parameters": rope("llama3", 1e6, factor=8.0, **LLAMA3),
        },
        peer=False,  # it gives windows to models of 64 layers, and has no heads of another size
    ),
    "exaone4, no windows": Row(
        "exaone4",
        "Exaone4",
        {
            "sliding_window": None,
            "layer_types": ["full_attention"] * 2,  # transformers fails to fill them in
            "rope_parameters": rope("llama3", 1e6, factor=8.0, **LLAMA3),
        },
    ),
    "qwen2": Row("qwen2", "Qwen2", {"rope_parameters": rope("yarn", **YARN)}),
    "qwen2, tied": Row("qwen2", "Qwen2", {"tie_word_embeddings": True, "rope_parameters": rope()}),
    "qwen3": Row("qwen3", "Qwen3", {"head_dim": 24, "rope_parameters": rope("default", 1e6)}),
    "qwen3moe": Row(
        "qwen3moe",
        "Qwen3Moe",
        {
            "head_dim": 24,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "norm_topk_prob": True,
            "rope_parameters": rope("default", 1e6),
        },
    ),
    "qwen3moe, weights as they are": Row(
        "qwen3moe",
        "Qwen3Moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "norm_topk_prob": False,
            "rope_parameters": rope(),
        },
        peer=False,  # it always makes them sum to 1
    ),
    "phi3, long": Row(
        "phi3",
        "Phi3",
        {
            "sliding_window": 40,
            "original_max_position_embeddings": 32,
            "rope_parameters": LONGROPE,
        },
        peer=False,  # it has no window
    ),
    "phi3, short": Row(
        "phi3",
        "Phi3",
        {
            "sliding_window": None,
            "original_max_position_embeddings": 256,
            "max_position_embeddings": 512,
            "rope_parameters": LONGROPE | {"original_max_position_embeddings": 256},
        },
    ),
    "ministral3": Row(
        "mistral3",
        "Ministral3",
        {
            "head_dim": 24,
            "rope_parameters": rope(
                "yarn",
                1e6,
                **YARN,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        },
    ),
    "smollm3": Row(
        "smollm3",
        "SmolLM3",
        {
            "num_hidden_layers": 5,
            "no_rope_layers": [1, 1, 1, 0, 1],
            "rope_parameters": rope("default", 2e6),
        },
    ),
    "smollm3, other layers": Row(
        "smollm3",
        "SmolLM3",
        {
            "num_hidden_layers": 4,
            "no_rope_layers": [1, 0, 0, 1],
            "rope_parameters": rope("default", 2e6),
        },
        peer=False,  # its layers without a rotation are each fourth
    ),
    "olmo3": Row(
        "olmo2",
        "Olmo3",
        {
            "num_hidden_layers": 5,
            "sliding_window": 40,
            "rope_parameters": {
                "sliding_attention": rope(theta=5e5),
                "full_attention": rope("yarn", 5e5, **YARN),
            },
        },
    ),
    "olmo2": Row("olmo2", "Olmo2", {"rope_parameters": rope("default", 5e5)}),
    "granite": Row("granite", "Granite", GRANITE),
    "granitemoe": Row(
        "granitemoe",
        "GraniteMoeShared",
        GRANITE
        | {"num_local_experts": 5, "num_experts_per_tok": 3, "shared_intermediate_size": 56},
    ),
    "granitehybrid": Row("granitehybrid", "GraniteMoeHybrid", GRANITE_HYBRID),
    "granitehybrid, dense, turning": Row(
        "granitehybrid",
        "GraniteMoeHybrid",
        GRANITE_HYBRID
        | {
            "num_local_experts": 0,
            "position_embedding_type": "rope",
            "mamba_n_groups": 1,
        },
    ),
    "granite, as a hybrid": Row(
        "granite",
        "GraniteMoeHybrid",
        GRANITE_HYBRID | {"num_local_experts": 0, "layer_types": ["attention"] * 4},
    ),
    "falcon-h1": Row(
        "falcon-h1",
        "FalconH1",
        FALCON_H1 | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    ),
    "falcon-h1, tied, no norm": Row(
        "falcon-h1",
        "FalconH1",
        FALCON_H1
        | {
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "projectors_bias": True,
            "mamba_proj_bias": True,
        },
        peer=False,  # it has no biases of the mixer
    ),
    "nemotron_h": Row(
        "nemotron_h",
        "NemotronH",
        NEMOTRON | {"layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba"]},
    ),
    "nemotron_h_moe": Row(
        "nemotron_h_moe",
        "NemotronH",
        NEMOTRON
        | {
            "layers_block_type": ["moe", "attention", "mamba", "mamba", "moe"],
            "n_routed_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "moe_shared_expert_intermediate_size": 56,
            "routed_scaling_factor": 1.5,
        },
    ),
    "starcoder2": Row("starcoder2", "Starcoder2", {"rope_parameters": rope("default", 1e5)}),
    "starcoder2, window": Row(
        "starcoder2",
        "Starcoder2",
        {"sliding_window": 40, "rope_parameters": rope("default", 1e5)},
        peer=False,  # it has no window
    ),
    "gpt2": Row(
        "gpt2",
        "GPT2",
        {
            "num_key_value_heads": 4,
            "n_embd": 64,
            "n_head": 4,
            "n_inner": 96,
            "n_layer": 2,
            "n_positions": 256,
        },
    ),
    "phi2": Row("phi2", "Phi", {"rope_parameters": rope(partial_rotary_factor=0.5)}),
    "stablelm": Row("stablelm", "StableLm", {"use_qkv_bias": True, "rope_parameters": PART}),
    "stablelm, parallel": Row(
        "stablelm",
        "StableLm",
        {"qk_layernorm": True, "use_parallel_residual": True, "rope_parameters": PART},
    ),
    "cohere2": Row(
        "cohere2",
        "Cohere2",
        {
            "num_hidden_layers": 5,
            "sliding_window": 40,
            "logit_scale": 0.25,
            "rope_parameters": rope(),
        },
    ),
    "gpt-oss": Row(
        "gpt-oss",
        "GptOss",
        {
            "num_hidden_layers": 4,
            "head_dim": 24,
            "num_local_experts": 5,
            "num_experts_per_tok": 3,
            "sliding_window": 40,
            "rope_parameters": rope("yarn", 150000.0, **YARN, truncate=False),
        },
        peer=False,  # it rounds the ends of YaRN's ramp
    ),
    "lfm2moe": Row(
        "lfm2moe",
        "Lfm2Moe",
        {
            "num_hidden_layers": 4,
            "conv_L_cache": 3,
            "num_dense_layers": 1,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "routed_scaling_factor": 1.5,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "rope_parameters": rope("default", 30000.0),
        },
        peer=False,  # it leaves out the factor on the experts' weights
    ),
    "lfm2": Row(
        "lfm2",
        "Lfm2",
        {
            "num_hidden_layers": 5,
            "conv_L_cache": 4,
            "conv_bias": True,
            "block_auto_adjust_ff_dim": True,
            "block_multiple_of": 20,
            "block_ffn_dim_multiplier": 1.1,
            "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
            "rope_parameters": rope("default", 30000.0),
        },
        peer=False,  # its loader knows no bias of a convolution
    ),
}
