"""Write small tokenizer.json objects, as Hugging Face's library saves them."""

from collections import Counter
from pathlib import Path
from typing import Any

TEXT = (Path(__file__).resolve().parents[2] / "README.md").read_text()[:6000]
MARK = "\u2581"
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


def spaces_marked(text: str, *, space_first: bool, **more: Any) -> dict[str, Any]:
    """Return a BPE over characters with U+2581 for spaces, as converted from SentencePiece.

    Its tokens are the pieces of up to four characters that `text` has more than once.
    """
    marked = text.replace(" ", MARK)
    pieces = Counter(marked[i : i + n] for n in (2, 3, 4) for i in range(len(marked) - n + 1))
    made = sorted((p for p, count in pieces.items() if count > 1), key=lambda p: (-pieces[p], p))
    singles = sorted(set(marked))
    special = ["<unk>", "<s>", "</s>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *singles, *made]
    known = set(singles) | set(made)
    prepend = [{"type": "Prepend", "prepend": MARK}] if space_first else []
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "special": True, **PLAIN} for i, token in enumerate(special)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [
                [token[:i], token[i:]]
                for token in made
                for i in range(1, len(token))
                if token[:i] in known and token[i:] in known
            ],
        },
        **more,
    }


def word_pieces(**normalizer: Any) -> dict[str, Any]:
    """Return a WordPiece as BERT has it, of the pieces of up to four letters that TEXT has."""
    words = {word.lower() for word in TEXT.split()} | set(TEXT.split())
    pieces = Counter(
        ("##" if at else "") + word[at : at + n]
        for word in words
        for n in (1, 2, 3, 4)
        for at in range(len(word) - n + 1)
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *sorted(p for p, n in pieces.items() if n > 1 or len(p) < 4), "\u2581"]
    frame = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "special": True, **PLAIN} for i, token in enumerate(special)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            **normalizer,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": frame,
            "pair": frame,
            "special_tokens": {
                token: {"id": token, "ids": [special.index(token)], "tokens": [token]}
                for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(tokens)},
        },
    }
