"""One row a family that reads: a tiny model of it that transformers can make, and what it gives.

Sizes differ pairwise, windows are shorter than the text.
"""

from dataclasses import dataclass, field
from typing import Any

N_VOCAB = 301
N_LONG, N_SHORT = 130, 37  # tokens of the two sequences
SIZES: dict[str, Any] = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Reader:
    """A model to be made: its architecture, its class, its configuration.

    `config` replaces or adds to SIZES. `pooling` is what sentence-transformers' modules say, which
    the folder gets, `dense` the sizes of the matrices among them. Classes that give scores have
    none. `answers`: the ids of yes and no, of one that writes text and ranks by the next token.
    `peer` tells how much of the largest magnitude llama.cpp may be off, None where it computes
    something else. `separators` are the places of tokens that end a text of a pair.
    """

    arch: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    pooling: str = ""
    dense: tuple[int, ...] = ()
    answers: tuple[int, int] | None = None
    peer: float | None = 1e-4
    separators: tuple[int, ...] = ()


TANH = 1e-3  # llama.cpp has the GELU by tanh, from a table in 16 bits
SHIFTED: dict[str, Any] = {
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "max_position_embeddings": 258,  # of which those up to the padding's id are not used
}
LOCAL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "local_attention": 40,
    "cls_token_id": 1,
    "sep_token_id": 2,
}

HALF = 3e-3  # llama.cpp keeps keys and values in 16 bits
QWEN3: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 24}

READERS: dict[str, Reader] = {
    "qwen3, last": Reader("qwen3", "Qwen3Model", QWEN3, "last", peer=HALF),
    "qwen3, answers": Reader("qwen3", "Qwen3ForCausalLM", QWEN3, answers=(7, 5), peer=HALF),
    "qwen3, answers, tied": Reader(
        "qwen3",
        "Qwen3ForCausalLM",
        QWEN3 | {"tie_word_embeddings": True},
        answers=(7, 5),
        peer=HALF,
    ),
    "qwen3, a score": Reader(
        "qwen3", "Qwen3ForSequenceClassification", QWEN3 | {"num_labels": 1}, peer=HALF
    ),
    "bert, mean": Reader("bert", "BertModel", pooling="mean", peer=TANH),
    "bert, first": Reader("bert", "BertModel", pooling="cls", peer=TANH),
    "bert, scores": Reader("bert", "BertForSequenceClassification", {"num_labels": 3}, peer=TANH),
    "bert, scores of pairs": Reader(
        "bert",
        "BertForSequenceClassification",
        {"num_labels": 1, "sep_token_id": 30},
        peer=None,  # its tokens are all of the first type
        separators=(10, 60, N_LONG + 5),
    ),
    "roberta": Reader("bert", "RobertaModel", SHIFTED, "mean", peer=TANH),
    "xlm-roberta, scores": Reader(
        "bert",
        "XLMRobertaForSequenceClassification",
        SHIFTED | {"num_labels": 1},
        peer=TANH,
    ),
    "nomic-bert": Reader("nomic-bert", "NomicBertModel", pooling="mean"),
    "nomic-bert-moe": Reader(
        "nomic-bert-moe",
        "NomicBertMoe",  # of ports.py
        {
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-5,
            "moe_every_n_layers": 2,
            "moe_top_k": 2,
            "n_embd": 64,
            "n_head": 4,
            "n_inner": 96,
            "n_layer": 3,
            "n_positions": 256,
            "num_experts": 5,
            "rotary_emb_base": 10000.0,
            "type_vocab_size": 1,
        },
        pooling="mean",
        peer=None,  # it leaves out the experts' bias
    ),
    "jina-bert-v2": Reader(
        "jina-bert-v2",
        "JinaBert",  # of ports.py
        {
            "feed_forward_type": "geglu",
            "hidden_act": "gelu",
            "hidden_size": 72,
            "intermediate_size": 96,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 256,
            "num_attention_heads": 6,  # no power of two
            "num_hidden_layers": 2,
            "position_embedding_type": "alibi",
            "type_vocab_size": 2,
        },
        pooling="mean",
        peer=TANH,
    ),
    "modern-bert": Reader("modern-bert", "ModernBertModel", LOCAL, "cls", peer=TANH),
    "modern-bert, scores of the first": Reader(
        "modern-bert",
        "ModernBertForSequenceClassification",
        LOCAL | {"num_labels": 1},
        peer=3 * TANH,
    ),
    "modern-bert, scores of all": Reader(
        "modern-bert",
        "ModernBertForSequenceClassification",
        LOCAL | {"num_labels": 3, "classifier_pooling": "mean"},
        peer=TANH,
    ),
    "modern-bert, biases": Reader(
        "modern-bert",
        "ModernBertForSequenceClassification",
        LOCAL
        | {
            "num_labels": 3,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "classifier_bias": True,
        },
        peer=None,  # its loader knows no biases
    ),
    "gemma-embedding": Reader(
        "gemma-embedding",
        "Gemma3TextModel",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "sliding_window": 40,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "use_bidirectional_attention": True,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
        pooling="mean",
        peer=TANH,
        dense=(112, 64),  # llama.cpp wants it to end as wide as it began
    ),
}
