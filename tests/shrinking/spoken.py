"""A tiny random llama that has a vocabulary of letters: it can be measured on texts."""

from tests.arch import tiny
from tests.gguf_writer import write_gguf

TEXT = "call me what you like. some years ago, having little money, i went to see the sea. " * 4
LETTERS = "▁abcdefghijklmnopqrstuvwxyz.,"


def write_spoken(path, **shape):
    """Write the model in F32 and return its path."""
    sizes = {"n_embd": 128, "n_ff": 256, "dim": 32, "n_heads": 4, "bias": False} | shape
    metadata, arrays = tiny.llama(**sizes)
    tokens = ["<unk>", "<s>", "</s>", *LETTERS]
    tokens += [f"<{i}>" for i in range(tiny.N_VOCAB - len(tokens))]
    metadata |= {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return write_gguf(path, metadata, arrays)
