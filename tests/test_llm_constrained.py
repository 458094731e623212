"""Answers that keep to a form, on a model of hashes whose text is as random as can be."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edgeinfer import Grammar
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import GrammarError, InvalidParameterError
from edgeinfer.llm import Model
from tests.engine.fakes import N_VOCAB, Prophet, make_engine
from tests.fake_llm import FakeFile, FakeTokenizer

PIECES = [bytes([32 + id]) for id in range(N_VOCAB - 2)] + [b"<end>", b"<bos>"]
for at, piece in zip(b"#$%&';<=>?@", '{" ": "}, \n [] true ]} é 🔥 ""'.split(" "), strict=False):
    PIECES[at - 32] = piece.encode() or b" "
WILD = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "owner": {"$ref": "#/$defs/owner"},
    },
    "required": ["name", "age", "kind", "tags", "owner"],
    "additionalProperties": False,
    "$defs": {
        "owner": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"id": {"type": "string", "pattern": "^[a-f]{3}$"}},
                    "required": ["id"],
                    "additionalProperties": False,
                },
            ]
        }
    },
}


class JsonTokenizer(FakeTokenizer):
    """Pieces that documents can be written with, some of which cross their parts."""

    def decode(self, ids):
        return b"".join(PIECES[id] for id in ids).decode(errors="replace")

    def piece(self, token_id):
        return PIECES[token_id]

    def pieces(self):
        return PIECES


def make_model(**options):
    engine = make_engine(n_pages=64, **options)
    return Model(FakeFile(), JsonTokenizer(), engine, SamplingParams())


@pytest.fixture(scope="module")
def model():
    with make_model() as model:
        yield model


def is_of_schema(text):
    document = json.loads(text)
    assert set(document) == set(SCHEMA["required"])
    assert type(document["name"]) is str and len(document["name"]) <= 6
    assert type(document["age"]) is int and 0 <= document["age"] <= 150
    assert document["kind"] in ("cat", "dog", None)
    assert len(document["tags"]) <= 3 and all(type(tag) is bool for tag in document["tags"])
    owner = document["owner"]
    assert owner is None or (set(owner) == {"id"} and re.fullmatch("[a-f]{3}", owner["id"]))
    return True


def test_every_document_is_of_its_schema(model):
    done = model.complete_many(["x"], n=24, json_schema=SCHEMA, seed=3, max_tokens=400, **WILD)

    assert all(is_of_schema(one.text) for one in done)
    assert {one.finish_reason for one in done} == {"stop"}
    assert {one.stop for one in done} == {None}
    assert len({one.text for one in done}) == 24


def test_white_space_ends(model):
    """The model would write nothing else."""
    favoured = {PIECES.index(piece): 100.0 for piece in (b" ", b"\n")}
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}
    done = model.generate("x", json_schema=schema, logit_bias=favoured, max_tokens=400, seed=1)

    assert done.finish_reason == "stop"
    assert 2 <= len(json.loads(done.text)) <= 4
    assert not re.search(r"\s{22}", done.text)


def test_any_object_is_parsed_or_cut_by_its_limit(model):
    object_ = {"type": "json_object"}
    done = model.complete_many(["x"], n=12, response_format=object_, seed=1, max_tokens=60, **WILD)

    for one in done:
        if one.finish_reason == "stop":
            assert isinstance(json.loads(one.text), dict)
        else:
            assert one.finish_reason == "length"
            assert one.usage.completion_tokens == 60
    assert {one.finish_reason for one in done} == {"stop", "length"}


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({"regex": "[a-f]{3,5}!"}, "[a-f]{3,5}!"),
        ({"grammar": 'root ::= "yes" | "no"'}, "yes|no"),
        ({"grammar": 'start: "yes" | "no"'}, "yes|no"),
        ({"grammar": Grammar.from_regex("[0-9]{2}")}, "[0-9]{2}"),
        ({"json_schema": '{"type": "boolean"}'}, "true|false"),
        ({"response_format": {"type": "json_object", "schema": {"type": "null"}}}, "null"),
        ({"response_format": {"type": "json_schema",
                              "json_schema": {"name": "n", "schema": {"const": 7}}}}, "7"),
    ],
)  # fmt: skip
def test_each_way_to_ask_for_a_form(model, options, form):
    for seed in range(8):
        assert re.fullmatch(form, model.generate("x", seed=seed, **options, **WILD).text)
        chat = model.chat([{"content": "x"}], seed=seed, **options, **WILD)
        assert re.fullmatch(form, chat.text)
        assert chat.finish_reason == "stop"


def test_text_as_response_format_is_any_text(model):
    options = {"seed": 4, "max_tokens": 20}

    assert model.generate("x", response_format={"type": "text"}, **options).text == (
        model.generate("x", **options).text
    )


def test_a_form_may_be_asked_for_once(model):
    with pytest.raises(InvalidParameterError, match="grammar: found regex, too"):
        model.generate("x", grammar='root ::= "a"', regex="a")


@pytest.mark.parametrize("given", [{}, {"type": "xml"}, {"type": "json_schema"}, "json"])
def test_an_unknown_response_format_lists_the_known(model, given):
    with pytest.raises(InvalidParameterError, match="need a dict whose type is 'text'"):
        model.generate("x", response_format=given)


def test_a_broken_grammar_is_an_error_of_the_call(model):
    with pytest.raises(GrammarError, match="line 1"):
        model.stream("x", grammar='root ::= "a')
    with pytest.raises(GrammarError, match="#/not"):
        model.stream("x", json_schema={"not": {}})


def test_an_answer_without_an_allowed_token_fails_alone(model):
    with pytest.raises(GrammarError, match="none of the model's tokens"):
        model.generate("x", regex="ß")
    stream, other = model.stream("x", regex="abß"), model.stream("x", regex="ab")

    with pytest.raises(GrammarError, match="none of the model's tokens"):
        stream.read()
    assert stream.completion.text == "ab"
    assert other.read().text == "ab"


def test_streamed_awaited_and_batched_answers_are_the_same(model):
    options = {"json_schema": SCHEMA, "max_tokens": 300, **WILD}
    alone = [model.generate("x", seed=5, choice=i, **options).text for i in range(4)]

    streamed = "".join(chunk.text for chunk in model.stream("x", seed=5, **options))
    many = model.complete_many(["x"], n=4, seed=5, **options)
    awaited = asyncio.run(model.acomplete_many(["x"], n=4, seed=5, **options))

    assert streamed == alone[0]
    assert [one.text for one in many] == [one.text for one in awaited] == alone


def test_threads_ask_for_different_forms_at_once(model):
    forms = [{"regex": f"{letter}{{{n}}}"} for n, letter in enumerate("abcdefgh", start=3)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda form: model.generate("x", seed=1, **form, **WILD), forms))

    assert [one.text for one in done] == [letter * n for n, letter in enumerate("abcdefgh", 3)]


def test_with_guesses_the_answer_is_the_same(model):
    options = {"json_schema": SCHEMA, "max_tokens": 300, "seed": 5, **WILD}
    ids = model.tokenize("x")
    expected = model.generate(ids, **options)
    guesser = Prophet({tuple(ids): list(expected.tokens)}, (0, 3, 1, 7))

    with make_model(guesser=guesser) as guessing:
        done = guessing.generate(ids, **options)

    assert done.tokens == expected.tokens
    assert done.finish_reason == "stop"
    assert done.timings.accepted_tokens > 0


def test_an_answer_that_shifts_keeps_its_place_in_the_grammar():
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 60, "maxItems": 60}
    with make_model(n_ctx=64) as model:
        done = model.generate("x", json_schema=schema, overflow="shift", seed=2, **WILD)

    assert done.n_dropped > 0
    assert done.finish_reason == "stop"
    assert len(json.loads(done.text)) == 60


def test_a_processor_sees_all_and_the_grammar_has_the_last_word(model):
    seen = []

    def favour_z(ids, logits):
        seen.append(np.isfinite(logits).all())
        logits[PIECES.index(b"z")] = 1000.0
        return logits

    done = model.generate("x", regex="[a-c]{4}z?", logits_processor=favour_z, seed=1)

    assert re.fullmatch("[a-c]{4}z", done.text)
    assert all(seen)


def test_a_space_that_begins_a_chat_answer_is_part_of_its_form(model, monkeypatch):
    monkeypatch.setattr(JsonTokenizer, "leading_space", True)

    assert model.chat([{"content": "x"}], regex=" a").text == " a"


def test_log_probabilities_are_of_the_model_and_of_each_token(model):
    done = model.generate("x", regex="[a-c]{4}", logprobs=2, seed=1, **WILD)

    assert [score.token for score in done.logprobs] == list(done.tokens)
    assert all(len(score.top) == 2 for score in done.logprobs)
    assert any(score.token not in dict(score.top) for score in done.logprobs)
