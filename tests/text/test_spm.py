"""SPM encoding agrees with sentencepiece on a model built the slow way, and gives texts back."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeinfer.text.spm import model_proto
from edgeinfer.text.tokenizer import Tokenizer

from .conftest import spm

WORDS = ["▁", "a", "b", "c", "ab", "▁a", "▁ab", "bc", "abc", "▁▁", "é", "ca", "\n"]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Parse one protobuf message: (field number, value) in order."""
    out, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            out.append((key >> 3, message[at : at + size]))
            at += size
        elif key & 7 == 5:
            out.append((key >> 3, message[at : at + 4]))
            at += 4
        else:
            out.append((key >> 3, varint()))
    return out


def test_serialized_model_holds_the_table() -> None:
    tokenizer = spm(WORDS)
    vocabulary = tokenizer._parts.vocabulary

    proto = fields(model_proto(vocabulary, 0, byte_fallback=True))

    pieces = [fields(value) for number, value in proto if number == 1]
    assert [dict(piece)[1] for piece in pieces] == vocabulary.strings.tobytes_list()
    assert [dict(piece)[3] for piece in pieces] == vocabulary.types.tolist()
    assert b"".join(dict(piece)[2] for piece in pieces) == vocabulary.scores.tobytes()  # type: ignore[union-attr]
    assert fields(dict(proto)[2]) == [(3, 2), (35, 1)]
    assert fields(dict(proto)[3]) == [(1, b"identity"), (3, 0), (4, 0), (5, 1)]


@given(st.text("abc é\n🔥", max_size=30))
def test_text_is_merged_by_score(text: str) -> None:
    assert PREFIXED.encode(text, add_special=False) == merged(text)


PREFIXED = spm(WORDS)
IDS = {word: 259 + i for i, word in enumerate(WORDS)}


def merged(text: str) -> list[int]:
    """The definition, in quadratic time: merge the best pair, the leftmost of equals."""
    if not text:
        return []
    symbols = list((" " + text).replace(" ", "▁"))
    while True:
        pairs = [(IDS[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in IDS]
        if not pairs:
            break
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        token
        for symbol in symbols
        for token in ([IDS[symbol]] if symbol in IDS else [3 + byte for byte in symbol.encode()])
    ]


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_any_text_comes_back(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    # SmolLM2 has no tokens for some control characters and for planes above the first two.
    some = st.characters(
        max_codepoint=0x1FFFF,
        exclude_categories=["Cs"],
        exclude_characters="\x04\x06\x13\x14\x16\x1d",
    )

    @given(st.text(some if name == "smollm2" else st.characters(exclude_categories=["Cs"])))
    @settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text), special=False) == text

    check()
    for text in ("text", " text", "  text", "", "\n", "<pad>text<eos>", "a  b\n\n\n  c\t\td"):
        assert tokenizer.decode(tokenizer.encode(text), special=False) == text


@given(st.text(max_size=20))
def test_space_prefix_is_taken_away_again(text: str) -> None:
    assert PREFIXED.decode(PREFIXED.encode(text), special=False) == text
    parsed = PREFIXED.encode("</s>" + text, parse_special=True)
    assert PREFIXED.decode(parsed[1:]) == "</s>" + text


def test_gemma_adds_no_space(gemma3: Tokenizer) -> None:
    assert gemma3.encode("Hello", add_special=False) == [9259]
    assert gemma3.encode(" Hello", add_special=False) == [26352]


def test_lower_block_character_is_not_a_space(gemma3: Tokenizer) -> None:
    assert gemma3.encode("a▁b") != gemma3.encode("a b")
    assert gemma3.decode(gemma3.encode("▁▂▃ ▁"), special=False) == "▁▂▃ ▁"
