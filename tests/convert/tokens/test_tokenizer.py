"""What the converter makes of a tokenizer.json encodes texts as Hugging Face's library does."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from edgeinfer.convert.config import Config
from edgeinfer.convert.tokens.tokenizer import tokenizer_keys
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.tokenizer import Tokenizer, tokenizer_from_metadata
from tests.convert.tokenizers import TEXT, byte_level, spaces_marked


def config(**keys: Any) -> Config:
    return Config("X", keys, Metadata(keys, where="config.json"))


def made(folder: Path, raw: dict[str, Any], c: Config | None = None, **more: Any) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    for name, content in more.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    n_vocab = len(raw["model"]["vocab"]) + 5
    keys = tokenizer_keys(folder, c or config(bos_token_id=1, eos_token_id=2), n_vocab=n_vocab)
    metadata = Metadata({entry.key: entry.value for entry in keys})
    return tokenizer_from_metadata(metadata, where="file")


def texts() -> list[str]:
    rng = random.Random(4)
    places = [rng.randrange(len(TEXT) - 200) for _ in range(60)]
    found = [TEXT[at : at + rng.randrange(1, 200)] for at in places]
    return [*found, "a  b   c", " lead", "trail ", "\n\n x\t", "\U0001f600 ñ 漢字", "the the  the"]


@pytest.mark.parametrize("space_first", [False, True])
def test_merges_become_scores_of_the_same_effect(tmp_path: Path, space_first: bool) -> None:
    raw = spaces_marked(TEXT, space_first=space_first)
    tokenizer = made(tmp_path, raw)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts():
        expected = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special=False) == expected, text


def test_a_missing_merge_is_refused(tmp_path: Path) -> None:
    raw = spaces_marked(TEXT, space_first=True)
    raw["model"]["merges"].pop()
    with pytest.raises(UnsupportedModelError, match="which make a token"):
        made(tmp_path, raw)


def test_without_a_space_of_its_own_merges_are_kept(tmp_path: Path) -> None:
    """As Gemma 4 has them, whose tokens do not go on beyond a line."""
    raw = spaces_marked(TEXT.replace("\n", " "), space_first=False)
    raw["model"]["merges"] = [m for i, m in enumerate(raw["model"]["merges"]) if i % 3]
    raw["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    tokenizer = made(tmp_path, raw)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts():
        expected = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special=False) == expected, text
        assert tokenizer.decode(expected) == text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"add_bos_token": True}, (True, False)),
        ({"add_bos_token": False, "add_eos_token": True}, (False, True)),
        ({}, (True, False)),
    ],
)
def test_bos_and_eos_are_added_as_the_files_say(
    tmp_path: Path, settings: dict[str, bool], expected: tuple[bool, bool]
) -> None:
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [begin, text], "pair": [], "special_tokens": {}}
    raw = spaces_marked(TEXT, space_first=True, post_processor=post)
    tokenizer = made(tmp_path, raw, tokenizer_config=settings)
    ids = tokenizer.encode("the")
    assert (ids[0] == 1, ids[-1] == 2) == expected


def test_all_ends_of_the_generation_settings_stop(tmp_path: Path) -> None:
    raw = spaces_marked(TEXT, space_first=True)
    tokenizer = made(tmp_path, raw, generation_config={"eos_token_id": [2, 270, 271]})
    assert {2, 270, 271} <= tokenizer.stop_ids


def test_a_token_behind_texts_is_their_end_and_not_that_of_answers(tmp_path: Path) -> None:
    """As Qwen3-Embedding has them."""
    end = {"SpecialToken": {"id": "<pad>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    post = {"type": "TemplateProcessing", "single": [text, end], "pair": [], "special_tokens": {}}
    tokenizer = made(tmp_path, byte_level(280, post_processor=post))
    assert tokenizer.encode("the") == [*tokenizer.encode("the", add_special=False), 0]
    assert tokenizer.eos_id == 0 and 2 in tokenizer.stop_ids
