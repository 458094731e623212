"""String arrays: the vectorised scan finds what a walk finds, whatever the strings are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader import strings
from edgeinfer.loader.strings import StringArray, scan

RNG = np.random.default_rng(3)
WORDS = ["", "a", "the", "\0", "\0" * 7, "\0" * 8, "\0" * 30, "é" * 40, "x" * 255, "x" * 256,
         "y" * 257, "z" * 70_000, "\U0001f600", "a\0", "\0a", "▁▁"]  # fmt: skip


def check(expected: list[str]) -> None:
    array = StringArray.from_strings(expected)
    raw = [text.encode() for text in expected]
    assert len(array) == len(expected)
    assert array.tolist() == expected
    assert list(array) == expected
    assert array.tobytes_list() == raw
    assert [array[i] for i in range(len(expected))] == expected
    assert array.lengths.tolist() == [len(text) for text in raw]
    found = [
        array.buffer[start : start + length].tobytes()
        for start, length in zip(array.starts.tolist(), array.lengths.tolist(), strict=True)
    ]
    assert found == raw


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 2047, 2048, 2049, 30_000])
def test_plain_words(n):
    check([f"w{i}" for i in range(n)])


@pytest.mark.parametrize("word", WORDS)
def test_one_odd_word_among_many(word):
    check([word])
    check([word] * 100)
    check([word, *["abc"] * 3000, word, word, *["de"] * 3000, word])


def test_odd_words_in_any_order():
    check([WORDS[i] for i in RNG.integers(0, len(WORDS) - 5, 20_000)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12) | st.sampled_from(WORDS), max_size=300), st.integers(1, 40))
def test_any_words(words, times):
    check(words * times)


def test_what_follows_the_array_is_not_read():
    """Bytes after the last string may look like more strings."""
    inner = StringArray.from_strings(["abc"] * 500)
    bounds = scan(inner.buffer, 0, 200, where="w")
    assert len(bounds) == 201
    assert bounds[-1] == 200 * 11


def test_indexing_is_a_sequences():
    array = StringArray.from_strings(["a", "bé", "c"])
    assert array[-1] == "c"
    assert array[1:] == ["bé", "c"]
    assert array[::-1] == ["c", "bé", "a"]
    assert "bé" in array
    assert array.index("c") == 2
    for index in (3, -4):
        with pytest.raises(IndexError):
            array[index]


@pytest.mark.parametrize("bad", [b"\xff", b"ok\xc3", b"\xa9", b"\xed\xa0\x80", b"\0\xf0"])
@pytest.mark.parametrize("index", [0, 1, 3000, 9000])
def test_invalid_utf8_names_the_index_and_leaves_the_rest(bad, index):
    raw: list[str | bytes] = ["naïve"] * 9001
    raw[index] = bad
    array = StringArray.from_strings(raw, where="m.gguf: key 'k'")
    for read in (lambda: array.tolist(), lambda: array[index]):
        with pytest.raises(ModelFormatError, match=f"^m.gguf: key 'k': string {index}: found b'"):
            read()
    assert array.tobytes_list()[index] == bad
    assert array[index - 1 if index else 1] == "naïve"


def test_a_sequence_cut_between_two_strings_is_not_joined():
    array = StringArray.from_strings([b"\xc3", b"\xa9"])
    with pytest.raises(ModelFormatError, match="string 0"):
        array.tolist()


@pytest.mark.parametrize("n_before", [0, 1, 100, 5000])
@pytest.mark.parametrize("length", [4, 255, 256, 1 << 31, 1 << 63, (1 << 64) - 1])
def test_a_length_past_the_end_names_the_string(n_before, length):
    stored = StringArray.from_strings(["ab"] * n_before).buffer.tobytes()
    stored += length.to_bytes(8, "little") + b"abc"
    with pytest.raises(ModelFormatError, match=f"w: string {n_before}: found length {length} with"):
        scan(np.frombuffer(stored, np.uint8), 0, n_before + 1, where="w")


@pytest.mark.parametrize("cut", range(12))
def test_an_array_cut_anywhere_in_its_last_string(cut):
    stored = StringArray.from_strings(["abcd"] * 1000).buffer[: 12 * 999 + cut]
    with pytest.raises(ModelFormatError, match=r"string 999: |array of 1000 strings"):
        scan(stored, 0, 1000, where="w")


def test_more_strings_than_can_be_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(strings, "MAX_STRINGS", 10)
    with pytest.raises(ModelFormatError, match=r"array of 11 strings .need at most 10"):
        StringArray.from_strings(["a"] * 11)
