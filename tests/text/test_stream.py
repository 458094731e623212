"""Streams of ids become text that is final: whole characters, nothing of a stop string."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeinfer.errors import InvalidParameterError
from edgeinfer.text.stream import TextStream
from edgeinfer.text.tokenizer import Tokenizer

from .conftest import spm


@pytest.fixture(scope="module")
def bytewise() -> Tokenizer:
    """Ids 3 to 258 are the bytes; ▁ and a few words follow."""
    return spm(["▁", "▁hi", "hi", "a", "b"])


def run(tokenizer: Tokenizer, ids: list[int], **options: object) -> tuple[list[str], str | None]:
    stream = TextStream(tokenizer, **options)  # type: ignore[arg-type]
    chunks = [stream.push(token_id) for token_id in ids]
    return [*chunks, stream.finish()], stream.stopped_by


@given(raw=st.binary(max_size=40))
@settings(max_examples=300)
def test_chunks_join_to_the_decoded_whole(bytewise: Tokenizer, raw: bytes) -> None:
    ids = [3 + byte for byte in raw]

    chunks, _ = run(bytewise, ids, at_start=True)

    assert "".join(chunks) == bytewise.decode(ids)
    continued, _ = run(bytewise, ids)
    assert "".join(continued) == raw.decode(errors="replace")


@given(text=st.text(max_size=30), data=st.data())
@settings(max_examples=200)
def test_stop_is_where_it_is_complete_first_however_text_is_cut(
    bytewise: Tokenizer, text: str, data: st.DataObject
) -> None:
    stops = data.draw(st.lists(st.text("ab🔥 ", min_size=1, max_size=4), max_size=3))
    text = "".join(c if i % 3 else "ab🔥 "[ord(c) % 4] for i, c in enumerate(text))
    ends = [(text.find(s) + len(s), text.find(s), s) for s in stops if s in text]

    chunks, stopped_by = run(bytewise, [3 + byte for byte in text.encode()], stop=stops)

    assert "".join(chunks) == (text[: min(ends)[1]] if ends else text)
    assert stopped_by == (min(ends)[2] if ends else None)


def test_emoji_arrives_whole(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("🔥👩‍👩‍👧")

    chunks, _ = run(smollm2, ids)

    assert len(ids) > 6
    assert "".join(chunks) == "🔥👩‍👩‍👧"
    assert all("\ufffd" not in chunk for chunk in chunks)


def test_unfinished_character_becomes_one_replacement(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("🔥")

    assert "".join(run(smollm2, ids[:1])[0]) == "\ufffd"
    assert smollm2.decode(ids[:1]) == "\ufffd"


def test_nothing_of_a_stop_string_is_emitted(smollm2: Tokenizer) -> None:
    pieces = [smollm2.encode(text)[0] for text in ("DEF", "GH", "I", "J", "K")]

    assert run(smollm2, pieces, stop=["DEFGHIJ"]) == ([""] * 6, "DEFGHIJ")
    chunks, stopped_by = run(smollm2, pieces[:2], stop=["DEFX"])
    assert ("".join(chunks), stopped_by) == ("DEFGH", None)
    chunks, stopped_by = run(smollm2, pieces[:1], stop=["DEFX"])
    assert (chunks, stopped_by) == (["", "DEF"], None)


def test_leading_space_belongs_to_a_continuation_only(bytewise: Tokenizer) -> None:
    hi = bytewise.n_vocab - 4

    assert bytewise.encode("hi hi") == [1, hi, hi]
    assert "".join(run(bytewise, [hi, hi])[0]) == " hi hi"
    assert "".join(run(bytewise, [hi, hi], at_start=True)[0]) == "hi hi"
    assert bytewise.decode([1, hi, hi], special=False) == "hi hi"


def test_control_tokens_are_left_out_or_spelled(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("a<|im_end|>", parse_special=True)

    assert "".join(run(smollm2, ids)[0]) == "a"
    assert "".join(run(smollm2, ids, skip_special=False)[0]) == "a<|im_end|>"


def test_empty_stop_and_bare_string_are_refused(smollm2: Tokenizer) -> None:
    for stop in ([""], "abc", [5]):
        with pytest.raises(InvalidParameterError, match="stop"):
            TextStream(smollm2, stop=stop)  # type: ignore[arg-type]
