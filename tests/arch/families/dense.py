"""The rows of models whose every layer attends and has one MLP."""

from .row import GRANITE, LLAMA3, YARN, Row, rope

LONGROPE = rope(
    "longrope",
    partial_rotary_factor=0.75,
    long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
    short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    original_max_position_embeddings=32,
)
PART = rope(partial_rotary_factor=0.25)

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
}
