"""WordPiece gives the ids of Hugging Face's library, from tokenizer.json and from vocab.txt."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from edgeinfer.convert.config import Config
from edgeinfer.convert.tokens.tokenizer import tokenizer_keys
from edgeinfer.errors import EdgeInferError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.tokenizer import Tokenizer, tokenizer_from_metadata
from tests.convert.tokenizers import TEXT, word_pieces

CONFIG = Config("X", {}, Metadata({"type_vocab_size": 2}, where="config.json"))
ODD = [
    "",
    " ",
    "\t\r\n",
    "Caf\u00c9 cafe\u0301 \u0130 \u00df stra\u00dfe \u01c5 \ufb01",
    "don't e-mail me@x.org: $5.00, 50% (yes) <b> [MASK] [CLS] [x]",
    "\u6f22\u5b57\u3092\u66f8\u304f \ud55c\uae00 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U00020000\U0001f600",
    "a\u0000b\ufffdc\u200bd\u00ade\u2028f\u3000g\u0001h",
    "\u05e9\u05c1 \u0645\u0631\u062d\u0628\u0627 \u1112\u1161\u11ab",
    "y" * 100,
    "y" * 101,
    "\u2581 a\u2581b ##ing x##ing",
]


def keys_of(folder: Path, n_vocab: int) -> Metadata:
    keys = tokenizer_keys(folder, CONFIG, n_vocab=n_vocab)
    return Metadata({entry.key: entry.value for entry in keys}, where="file")


def made(folder: Path, raw: dict[str, Any]) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    metadata = keys_of(folder, len(raw["model"]["vocab"]) + 3)
    return tokenizer_from_metadata(metadata, where="file")


def texts() -> list[str]:
    rng = random.Random(7)
    places = [rng.randrange(len(TEXT) - 200) for _ in range(40)]
    letters = "".join(map(chr, [*range(32, 0x250), *range(0x300, 0x310), *range(0x2580, 0x2590)]))
    noise = ["".join(rng.choices(letters, k=60)) for _ in range(40)]
    return [*ODD, *noise, *(TEXT[at : at + rng.randrange(1, 200)] for at in places)]


@pytest.mark.parametrize(
    "normalizer",
    [
        {"lowercase": True, "strip_accents": None},
        {"lowercase": False, "strip_accents": None},
        {"lowercase": False, "strip_accents": True},
        {"lowercase": True, "strip_accents": False},
    ],
)
def test_ids_are_those_of_the_library(tmp_path: Path, normalizer: dict[str, Any]) -> None:
    raw = word_pieces(**normalizer)
    tokenizer = made(tmp_path, raw)
    library = Library.from_str(json.dumps(raw))
    for text in texts():
        assert tokenizer.encode(text, parse_special=True) == library.encode(text).ids, text
    assert tokenizer.decode(tokenizer.encode("the other"), special=False) == "the other"


def test_a_list_of_tokens_is_what_its_class_makes_of_it(tmp_path: Path) -> None:
    raw = word_pieces(lowercase=True, strip_accents=None)
    tokens = raw["model"]["vocab"]
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "tokenizer.json").write_text(json.dumps(raw))
    (tmp_path / "vocab.txt").write_bytes("\n".join(tokens).encode() + b"\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "mask_token": null}')
    listed, whole = (keys_of(folder, len(tokens)) for folder in (tmp_path, tmp_path / "json"))
    assert listed.strings("tokenizer.ggml.tokens").tolist()[:8] == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *("\u2581" + token for token in list(tokens)[5:8]),
    ]
    for key in ("seperator", "unknown", "bos"):
        assert listed[f"tokenizer.ggml.{key}_token_id"] == whole[f"tokenizer.ggml.{key}_token_id"]
    assert listed["tokenizer.ggml.token_type_count"] == 2
    first, second = (tokenizer_from_metadata(keys, where="x") for keys in (listed, whole))
    assert [first.encode(text) for text in texts()] == [second.encode(text) for text in texts()]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"normalizer": None}, "normalizer: found 'None' .need BertNormalizer"),
        ({"normalizer": {"type": "BertNormalizer", "handle_chinese_chars": False}}, "chinese"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer: found"),
        ({"post_processor": {"type": "BertProcessing", "sep": 3, "cls": ["[CLS]", 2]}}, "'3'"),
        ({"post_processor": {"type": "BertProcessing", "sep": ["x", 9], "cls": ["y", -1]}}, "-1"),
        ({"post_processor": {"type": "TemplateProcessing", "single": ["x"]}}, "refuses it"),
    ],
)
def test_what_a_file_cannot_say_is_refused(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    raw = word_pieces(lowercase=True, strip_accents=None) | keys
    with pytest.raises(EdgeInferError, match=message):
        made(tmp_path, raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"continuing_subword_prefix": "@@"}, "continuing_subword_prefix"),
        ({"max_input_chars_per_word": 50}, "max_input_chars_per_word"),
        ({"vocab": {"[UNK]": 1, "##\u2581x": 2, "[CLS]": 0}}, "U.2581 behind"),
    ],
)
def test_words_spelled_otherwise_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    raw = word_pieces(lowercase=True, strip_accents=None)
    raw["model"] |= change
    if "vocab" in change:
        raw["added_tokens"] = []
    with pytest.raises(EdgeInferError, match=message):
        made(tmp_path, raw)
