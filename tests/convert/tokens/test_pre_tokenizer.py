"""Pre-tokenizers are known by what they do, however their rules are spelled."""

from typing import Any

import pytest

from edgeinfer.convert.tokens.foreign import own_ids
from edgeinfer.convert.tokens.pre_tokenizer import PROBE, known_cuts, name_of
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.text.pretokenizers import PRE_TOKENIZERS
from tests.convert.tokenizers import GPT2, byte_level

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = GPT2 | {"use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}


def cut_by(regex: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return sequence(split, BYTES)


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


@pytest.mark.parametrize(
    ("raw", "ignore_merges", "name"),
    [
        (cut_by(LLAMA3), True, "llama3"),
        (cut_by(LLAMA3), False, "dbrx"),
        (cut_by(LLAMA3.replace("{1,3}", "")), False, "qwen2"),
        (GPT2, False, "gpt-2"),
        (sequence(DIGITS, GPT2), False, "starcoder"),
    ],
)
def test_a_rule_is_found_by_its_cuts(raw: Any, ignore_merges: bool, name: str) -> None:
    assert name_of(raw, ignore_merges=ignore_merges, where="x") == name


@pytest.mark.parametrize(
    "raw",
    [cut_by(LLAMA3.replace("{1,3}", "{1,2}")), GPT2 | {"add_prefix_space": True}, None],
)
def test_another_rule_is_refused(raw: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="x: pre_tokenizer: cuts texts as no known"):
        name_of(raw, ignore_merges=False, where="x")


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "Nothing"},
        cut_by("("),
        cut_by("(?: +)+$|(?:[ ]+[ ]+)+q"),  # the library panics: out of steps
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_rule_that_the_library_does_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, raw: Any, frozen: bool
) -> None:
    monkeypatch.setattr("sys.frozen", frozen, raising=False)
    with pytest.raises(ModelFormatError, match="x: pre_tokenizer: the tokenizers library refuses"):
        name_of(raw, ignore_merges=False, where="x")


SLOW = sequence(*[cut_by(" + + {1,45}q")["pretokenizers"][0]] * 4, BYTES)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: name_of(SLOW, ignore_merges=False, where="x"),
        lambda: own_ids(byte_level(280, pre_tokenizer=SLOW), [PROBE], "x"),
    ],
)
def test_a_rule_that_takes_a_minute_is_stopped(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    """Each match is within the library's bound, and there are hundreds."""
    monkeypatch.setattr("edgeinfer.convert.tokens.foreign.MOST_S", 1)
    with pytest.raises(UnsupportedModelError, match=r"x: .*longer than 1 s"):
        ask()


def test_the_probe_tells_all_rules_apart() -> None:
    """But for one pair that differs on no text: a line's end is the last of a greedy run."""
    cuts = known_cuts()
    kinds = {(cut, PRE_TOKENIZERS[name].ignore_merges) for name, cut in cuts.items()}
    assert len(kinds) == len(cuts.keys() - {"bailingmoe"})
