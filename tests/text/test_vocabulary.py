"""Broken token tables are refused by name; odd but sound ones load."""

from typing import Any

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, ModelFormatError, UnsupportedModelError
from edgeinfer.text.tokenizer import Tokenizer

from .conftest import made, spm

BPE: dict[str, Any] = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["a", "b", "ab", "<e>"],
    "token_type": np.array([1, 1, 1, 3], np.int32),
    "merges": ["a b"],
}


def bpe(**keys: Any) -> Tokenizer:
    return made(**BPE | keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokens": []}, "no tokens"),
        ({"tokens": np.zeros(4, np.int32)}, "array of strings"),
        ({"token_type": np.ones(3, np.int32)}, "found 3 values .need 4"),
        ({"token_type": np.ones(4, np.float32)}, "array of integers"),
        ({"token_type": np.full(4, 9, np.int32)}, "found types 9 to 9"),
        ({"scores": np.zeros(5, np.float32)}, "found 5 values"),
        ({"scores": np.zeros(4, np.int32)}, "array of floats"),
        ({"scores": np.full(4, np.nan, np.float32)}, "NaN"),
        ({"bos_token_id": 4}, "bos_token_id.*found 4 .need 0 to 3"),
        ({"bos_token_id": -1}, "found -1"),
        ({"eos_token_id": 2**31}, "found 2147483648"),
        ({"eos_token_id": "3"}, "need an integer"),
        ({"add_bos_token": True}, "no bos token id"),
        ({"add_eos_token": 1}, "need a bool"),
        ({"merges": np.zeros(2, np.int32)}, "array of strings"),
        ({"tokens": [b"a", b"b", b"\xff", b"d"]}, "valid UTF-8"),
        ({"tokens": ["a", "b", "a", "<e>"]}, "tokens 0 and 2: found 'a' twice"),
        ({"merges": ["ab"]}, "merge 0: found 'ab'"),
        ({"merges": ["a b", "a "]}, "merge 1"),
    ],
)
def test_contradiction_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        bpe(**keys).prepare()


@pytest.mark.parametrize("text", ["<0x-1>", "<0xZZ>", "<0x100>", "<0x1>", "<0x 1>", "0x01"])
def test_malformed_byte_token_is_refused(text: str) -> None:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts[40] = text

    types = np.array([2, 3, 3, *[6] * 256], np.int32)

    with pytest.raises(ModelFormatError, match="byte token 40"):
        made(model="llama", tokens=texts, token_type=types, scores=np.zeros(259, np.float32))


def test_missing_and_double_byte_tokens_are_refused() -> None:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(255))]
    scores = np.zeros(258, np.float32)
    types = np.array([2, 3, 3, *[6] * 255], np.int32)

    with pytest.raises(ModelFormatError, match="found 255 different"):
        made(model="llama", tokens=texts, token_type=types, scores=scores)
    with pytest.raises(ModelFormatError, match="found 255 different ones in 256"):
        made(
            model="llama",
            tokens=[*texts, "<0x00>"],
            token_type=np.append(types, 6).astype(np.int32),
            scores=np.zeros(259, np.float32),
        )


def test_table_without_bytes_and_unknown_token_is_refused() -> None:
    scores = np.zeros(2, np.float32)

    with pytest.raises(ModelFormatError, match="neither an unknown token nor byte tokens"):
        made(model="llama", tokens=["a", "b"], scores=scores, add_bos_token=False).prepare()


def test_unknown_kinds_list_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"found 'rwkv' .known: llama, gpt2, bert"):
        bpe(model="rwkv")
    with pytest.raises(UnsupportedModelError, match=r"found 'nonsense' .known: .*gpt-2.*smollm"):
        bpe(pre="nonsense")
    without = {key: value for key, value in BPE.items() if key != "pre"}
    with pytest.raises(UnsupportedModelError, match="found none"):
        made(**without)


def test_bad_padding_id_is_a_warning() -> None:
    tokenizer = bpe(padding_token_id=99)

    assert tokenizer.pad_id is None
    assert "padding is off" in tokenizer.warnings[0]


def test_merges_that_cannot_apply_are_ignored() -> None:
    tokenizer = bpe(merges=["a b", "x y", "a b c", "ab a"])

    assert tokenizer.encode("abab", add_special=False) == [2, 2]


def test_empty_and_very_long_tokens_load() -> None:
    long = "x" * 1_000_000

    tokenizer = spm(["a", "", long, "", "b"])
    assert tokenizer.encode("b", add_special=False)[-1] == 263
    assert tokenizer.decode([261]) == long
    assert tokenizer.decode([260]) == ""
    assert bpe(tokens=["a", "b", "ab", "", ""], token_type=np.ones(5, np.int32)).encode("ab") == [2]


@pytest.mark.parametrize("token_id", [-1, 4, 2**31, 2**70, True, 0.5, "0", None])
def test_id_out_of_range_is_refused(token_id: Any) -> None:
    tokenizer = bpe()

    with pytest.raises(InvalidParameterError, match="allowed 0 to 3"):
        tokenizer.decode([token_id])
    with pytest.raises(InvalidParameterError, match="allowed 0 to 3"):
        tokenizer.piece(token_id)


def test_lone_surrogate_is_refused_and_odd_text_is_not(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidParameterError, match=r"lone surrogate U.D800"):
        smollm2.encode("a\ud800")
    for text in ("a\0b", "\ufeffx", "a\r\nb", "\U000e0fff", "\u0378", "\x7f\x80"):
        assert smollm2.decode(smollm2.encode(text)) == text


def test_several_unknown_tokens_are_one_at_most() -> None:
    types = np.array([2, 3, 3, *[6] * 256, 2, 1], np.int32)

    tokenizer = spm(["<other>", "a"], token_type=types, unknown_token_id=0)

    assert tokenizer.encode("a<other>", add_special=False)[0] != 259
    assert 259 in tokenizer.encode("a<other>", parse_special=True)
