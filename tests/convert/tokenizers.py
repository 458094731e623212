"""Write small tokenizer.json objects, as Hugging Face's library saves them."""

from typing import Any

SPECIAL = ("<pad>", "<s>", "</s>")
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MERGES = ("t h", "th e", "a n", "an d", "i n", "in g", "o n")


def byte_letters() -> list[str]:
    """Return the letter that stands for each byte in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]


def byte_level(n_tokens: int, **more: Any) -> dict[str, Any]:
    """Return a byte-level BPE of this many tokens, 266 or more, GPT-2's way to cut."""
    made = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIAL, *byte_letters(), *made]
    tokens += [f"extra{i}" for i in range(n_tokens - len(tokens))]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "special": True, **PLAIN} for i, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": GPT2,
        "post_processor": None,
        "decoder": GPT2,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(MERGES),
        },
        **more,
    }
