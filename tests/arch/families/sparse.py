"""The rows of models of experts whose every layer attends."""

from typing import Any

from .row import GRANITE, YARN, Row, rope

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

ROWS: dict[str, Row] = {
    "mixtral": Row("llama", "Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3}),
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
    "granitemoe": Row(
        "granitemoe",
        "GraniteMoeShared",
        GRANITE
        | {"num_local_experts": 5, "num_experts_per_tok": 3, "shared_intermediate_size": 56},
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
}
