"""Real vocabularies give the expected ids, and the bytes back."""

from collections.abc import Callable
from typing import Any

import pytest

from edgeinfer.text.tokenizer import Tokenizer

from .conftest import VOCABULARIES, Case


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabulary_gives_the_expected_ids(name: str, vocabulary: Callable[[str], Case]) -> None:
    case = vocabulary(name)

    assert len(case.texts) == len(case.expected) >= 46
    for text, expected in zip(case.texts, case.expected, strict=True):
        assert case.tokenizer.encode(text, add_special=False) == expected, text


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name != "bert-bge"])
def test_texts_come_back_byte_for_byte(name: str, vocabulary: Callable[[str], Case]) -> None:
    case = vocabulary(name)

    for text in case.texts:
        assert case.tokenizer.decode(case.tokenizer.encode(text)[case.tokenizer.add_bos :]) == text
        assert case.tokenizer.decode(case.tokenizer.encode(text), special=False) == text


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_give_the_reference_ids(
    name: str, request: pytest.FixtureRequest, reference: Callable[[str], dict[str, Any]]
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    data = reference(name)

    for case in data["cases"]:
        ids = tokenizer.encode(case["text"], add_special=data["add_special"])
        assert ids == case["tokens"]
        assert tokenizer.decode(ids, special=False) == case["text"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_all_pieces_at_once_are_those_of_each_id(
    name: str, vocabulary: Callable[[str], Case]
) -> None:
    tokenizer = vocabulary(name).tokenizer
    pieces = tokenizer.pieces()

    assert len(pieces) == tokenizer.n_vocab
    some = [*range(600), *range(600, len(pieces), 97), len(pieces) - 1]
    assert [pieces[id] for id in some] == [tokenizer.piece(id) for id in some]
