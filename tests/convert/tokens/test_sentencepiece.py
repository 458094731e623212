"""SentencePiece's models, alone or as tokenizer.json, give the ids of their own libraries."""

import base64
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import Tokenizer as Library

from edgeinfer.convert.config import Config
from edgeinfer.convert.tokens.sentencepiece_model import read_sentencepiece
from edgeinfer.convert.tokens.tokenizer import tokenizer_keys
from edgeinfer.errors import EdgeInferError, ModelFormatError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.tokenizer import Tokenizer, tokenizer_from_metadata
from tests.convert.tokenizers import PLAIN, TEXT

MARK = "\u2581"
ODD = [
    "",
    " ",
    "  a  b   ",
    "\ttab\nline\r\n\u3000wide\u00a0hard\u2028x\u0085y",
    "\uff21\uff22\uff23 \u2460 \u00bd \ufb01ne \u212b e\u0301 \u1112\u1161\u11ab \uff76\uff9e",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0939\u093f\u0928\u094d\u0926\u0940 \u05e9\u05c1",
    "a\u0000b\ufffdc\u200bd\u00ade\u0001f\ufeffg",
    "x" * 3000,
    "<0x41> [PAD3] <a>",
]
Make = Callable[..., bytes]


@pytest.fixture(scope="module")
def model() -> Make:
    """A function that trains a model on TEXT."""

    def trained(kind: str, **options: Any) -> bytes:
        to = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.split("\n")),
            model_writer=to,
            model_type=kind,
            vocab_size=420,
            minloglevel=2,
            num_threads=1,
            **options,
        )
        return to.getvalue()

    return trained


def made(folder: Path, n_vocab: int = 430) -> Tokenizer:
    keys = tokenizer_keys(folder, Config("X", {}, Metadata({}, where="config")), n_vocab=n_vocab)
    metadata = Metadata({entry.key: entry.value for entry in keys}, where="file")
    return tokenizer_from_metadata(metadata, where="file")


def texts() -> list[str]:
    rng = random.Random(9)
    places = [rng.randrange(len(TEXT) - 200) for _ in range(40)]
    letters = "".join(map(chr, [*range(32, 0x180), *range(0x300, 0x310), *range(0xFF00, 0xFFA0)]))
    noise = ["".join(rng.choices(letters, k=60)) for _ in range(40)]
    return [*ODD, *noise, *(TEXT[at : at + rng.randrange(1, 200)] for at in places)]


@pytest.mark.parametrize("space_first", [True, False])
def test_a_model_of_merges_alone_suffices(tmp_path: Path, model: Make, space_first: bool) -> None:
    raw = model(
        "bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=space_first,
        user_defined_symbols=["<tool>"],
    )
    (tmp_path / "tokenizer.model").write_bytes(raw)
    tokenizer = made(tmp_path)
    library = sentencepiece.SentencePieceProcessor(model_proto=raw)
    for text in texts():
        assert tokenizer.encode(text) == [1, *library.EncodeAsIds(text)], text
        assert tokenizer.decode(tokenizer.encode(text), special=False) == text
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, True)


def test_likelihoods_give_the_ids_of_the_library(tmp_path: Path, model: Make) -> None:
    """As XLM-RoBERTa has it: ids of its own for the special tokens, characters normalized."""
    raw = model("unigram")
    (tmp_path / "m.model").write_bytes(raw)
    found = read_sentencepiece(tmp_path / "m.model")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = [[token, 0.0] for token in special] + [[p.text, p.score] for p in found.pieces[3:]]
    vocab.append(["<mask>", 0.0])
    charsmap = base64.b64encode(found.charsmap).decode()
    frame = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ]
    tokenizer_json = {
        "added_tokens": [
            {"id": i, "content": token, "special": True, **PLAIN}
            for i, (token, _) in enumerate(vocab)
            if token in (*special, "<mask>")
        ],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": frame,
            "pair": frame,
            "special_tokens": {
                token: {"id": token, "ids": [special.index(token)], "tokens": [token]}
                for token in ("<s>", "</s>")
            },
        },
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    tokenizer = made(tmp_path)
    library = Library.from_str(json.dumps(tokenizer_json))
    for text in texts():
        assert tokenizer.encode(text) == library.encode(text).ids, text
    assert tokenizer.encode("a<mask>b", parse_special=True) == library.encode("a<mask>b").ids
    assert tokenizer.decode(tokenizer.encode("the other"), special=False) == "the other"
    # What a user spells stays text, though the likeliest of all tokens has that name.
    assert not {0, 1, 2, 421} & set(tokenizer.encode("<s>a<mask>", add_special=False))


def test_a_model_of_likelihoods_alone_suffices(tmp_path: Path, model: Make) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model("unigram"))
    tokenizer = made(tmp_path)
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in [TEXT[at : at + 90] for at in range(0, 4000, 97)]:
        assert tokenizer.encode(text) == [1, *library.EncodeAsIds(text)], text


def test_a_model_that_changes_characters_before_merges_is_refused(
    tmp_path: Path, model: Make
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model("bpe"))
    with pytest.raises(EdgeInferError, match="would become"):
        made(tmp_path)


def test_broken_models_are_refused(tmp_path: Path, model: Make) -> None:
    raw = model("unigram")
    path = tmp_path / "tokenizer.model"
    rng = random.Random(2)
    broken = [raw[: rng.randrange(len(raw))] for _ in range(30)]
    for _ in range(60):
        damaged = bytearray(raw)
        for _ in range(4):
            damaged[rng.randrange(len(raw))] = rng.randrange(256)
        broken.append(bytes(damaged))
    n_refused = 0
    for data in broken:
        path.write_bytes(data)
        try:
            read_sentencepiece(path)
        except EdgeInferError:
            n_refused += 1
    assert n_refused > 30
    for data in (b"", b"\x0a\xff", b"\x0b", b"\x80" * 20, b"\x0a\x03\x0a\x01\xff", b"\x08\x01"):
        path.write_bytes(data)
        with pytest.raises(ModelFormatError, match=r"tokenizer\.model"):
            read_sentencepiece(path)


def test_a_damaged_table_of_characters_is_refused(tmp_path: Path, model: Make) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model("unigram"))
    keys = tokenizer_keys(tmp_path, Config("X", {}, Metadata({}, where="c")), n_vocab=420)
    values = {entry.key: entry.value for entry in keys}
    name = "tokenizer.ggml.precompiled_charsmap"
    for damaged in (values[name][:3], values[name][:5000], 255 - values[name]):
        metadata = Metadata(values | {name: damaged}, where="file")
        with pytest.raises(ModelFormatError, match="precompiled_charsmap"):
            tokenizer_from_metadata(metadata, where="file").prepare()
