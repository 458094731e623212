"""Special tokens: which texts spell them, which ids end a generation, what is left as text."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeinfer.text.special import SpecialTokens, Strip
from edgeinfer.text.tokenizer import Tokenizer

from .conftest import made

TOKENS = ["a", "b", "<|im_end|>", "</s>", "<one>", "<one><two>", "[X]", "ab"]
NORMAL, CONTROL, USER = 1, 3, 4


def tokenizer(types: list[int], tokens: list[str] | None = None, **keys: Any) -> Tokenizer:
    return made(
        model="gpt2",
        pre="gpt-2",
        tokens=tokens or TOKENS,
        token_type=np.array(types, np.int32),
        merges=["a b"],
        **keys,
    )


PLAIN = tokenizer([NORMAL, NORMAL, NORMAL, USER, CONTROL, CONTROL, USER, NORMAL])


def test_control_looking_tokens_are_control_tokens_whatever_the_file_says() -> None:
    assert PLAIN.stop_ids == {2, 3}
    assert PLAIN.encode("a<|im_end|>", parse_special=True) == [0, 2]
    assert 2 not in PLAIN.encode("a<|im_end|>") and 3 not in PLAIN.encode("a</s>")
    assert PLAIN.decode([0, 2, 3], special=False) == "a"


def test_user_defined_tokens_are_recognised_always_the_longest_first() -> None:
    assert PLAIN.encode("a[X]b") == [0, 6, 1]
    assert PLAIN.encode("<one><two><one>", parse_special=True) == [5, 4]


def test_declared_ids_end_the_generation() -> None:
    other = tokenizer([NORMAL] * 6 + [CONTROL, NORMAL], eos_token_id=6, eot_token_id=4)

    assert other.stop_ids == {2, 3, 4, 6}
    assert other.eos_id == 6


def test_harmony_message_end_is_no_stop() -> None:
    names = ["a", "<|end|>", "<|return|>", "<|call|>", "<|channel|>"]

    tokens = tokenizer([NORMAL, *[CONTROL] * 4], names)

    assert tokens.stop_ids == {2, 3}
    assert tokens.decode([4, 1], special=False) == "<|channel|><|end|>"


def test_real_models_stop_where_their_turns_end(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert {0, 2} <= smollm2.stop_ids
    assert {1, 106} <= gemma3.stop_ids
    assert smollm2.bos_id == 1 and not smollm2.add_bos and smollm2.encode("") == []
    assert gemma3.bos_id == 2 and gemma3.add_bos and gemma3.encode("") == [2]


def test_special_text_is_plain_text_unless_parsed(gemma3: Tokenizer) -> None:
    text = "A<start_of_turn>B<eos>"

    ids = gemma3.encode(text)
    assert gemma3.decode(ids, special=False) == text
    assert gemma3.encode(text, parse_special=True)[2] == 105


def test_stripping_tokens_swallow_white_space() -> None:
    names = ["a", "b", "<l>", "<r>"]
    parts = tokenizer([NORMAL, NORMAL, CONTROL, CONTROL], names)._parts
    special = SpecialTokens(parts.vocabulary, Strip(frozenset({2}), frozenset({3})))

    assert list(special.split("a  <l> b <r> \n a", True)) == ["a", 2, " b ", 3, "a"]


@given(st.text("ab<|im_end>one two[X]/s", max_size=40), st.booleans())
def test_pieces_join_to_the_text(text: str, parse: bool) -> None:
    pieces = list(PLAIN._special.split(text, parse))

    spelled = [TOKENS[p] if isinstance(p, int) else p for p in pieces]
    assert "".join(spelled) == text
    assert all(spelled)
