"""The rows of models of which some layers recur or convolve instead of attending."""

from typing import Any

from .row import GRANITE, Row, rope

LINEAR = "linear_attention"
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
    # transformers 5 takes it for a limit of the steps. NVIDIA's own code, whose weights these are,
    # has time_step_limit, (0, inf); so do llama.cpp and mlx-lm (its pull request 1026 measures what
    # the limit costs). transformers' pull request 48989 takes it out.
    "time_step_min": 1e-30,
}

ROWS: dict[str, Row] = {
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
    "qwen3next": Row(
        "qwen3next",
        "Qwen3Next",
        DELTA
        | {
            "linear_value_head_dim": 8,
            "rope_parameters": rope(theta=30000.0, partial_rotary_factor=0.5),
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 56,
        },
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
