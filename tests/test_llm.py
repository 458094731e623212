"""The class users hold: arguments, streams, answers; on a model of hashes."""

import inspect
import threading
from dataclasses import fields

import numpy as np
import pytest

from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import (
    ContextOverflowError,
    InvalidParameterError,
)
from edgeinfer.llm import Model
from tests.engine.fakes import N_VOCAB
from tests.fake_llm import BOS, END, PIECES, FakeTokenizer, make_model


@pytest.fixture
def model():
    with make_model() as model:
        yield model


@pytest.mark.parametrize("name", ["generate", "stream", "chat", "stream_chat"])
def test_every_sampling_parameter_is_an_argument(name):
    parameters = inspect.signature(getattr(Model, name)).parameters

    missing = {field.name for field in fields(SamplingParams)} - set(parameters)

    assert not missing
    assert all(parameters[field.name].default is None for field in fields(SamplingParams))


def test_stream_joined_equals_generate(model):
    for seed in range(20):
        stream = model.stream("hello", max_tokens=30, seed=seed, temperature=2.0, top_k=0)
        text = "".join(chunk.text for chunk in stream)
        whole = model.generate("hello", max_tokens=30, seed=seed, temperature=2.0, top_k=0)

        assert text == stream.completion.text == whole.text
        assert stream.completion.tokens == whole.tokens
        assert stream.completion.finish_reason == whole.finish_reason
        assert stream.completion.usage.completion_tokens == len(whole.tokens)


def test_the_space_an_encoder_puts_before_a_text_is_no_part_of_a_chat_answer(model, monkeypatch):
    monkeypatch.setattr(FakeTokenizer, "leading_space", True)
    spaces = {"logit_bias": {0: 100.0}, "temperature": 0, "max_tokens": 3}

    assert model.generate("x", **spaces).text == "   "
    assert model.chat([{"content": "x"}], **spaces).text == "  "
    assert "".join(c.text for c in model.stream_chat([{"content": "x"}], **spaces)) == "  "


def test_characters_of_several_tokens_come_whole(model):
    emoji = {N_VOCAB - 5: 100.0, N_VOCAB - 4: 100.0, N_VOCAB - 3: 100.0}
    texts = []
    for seed in range(20):
        stream = model.stream("x", max_tokens=20, seed=seed, temperature=5.0, logit_bias=emoji)
        chunks = list(stream)
        done = stream.completion
        assert "".join(chunk.text for chunk in chunks) == done.text
        pieces = [PIECES[id] for id in done.tokens if id != BOS]
        assert done.text == b"".join(pieces).decode(errors="replace")
        texts.append(done.text)

    assert any("🔥" in text for text in texts)


def test_temperature_0_is_argmax_of_the_logits(model):
    ids = model.tokenize("hello")
    done = model.generate(ids, max_tokens=5, temperature=0)

    for id in done.tokens:
        assert id == model.logits(ids)[-1].argmax()
        ids.append(id)


def test_logits_equal_whatever_was_computed_before(model):
    ids = model.tokenize("the same text")
    before = model.logits(ids)
    model.generate("the same text and more", max_tokens=3)

    assert before.shape == (13, N_VOCAB)
    assert before.dtype == np.float32
    assert (model.logits(ids) == before).all()


def test_equal_seeds_give_equal_answers_and_others_differ(model):
    def text(seed):
        return model.generate("hello", max_tokens=30, temperature=1.5, top_k=0, seed=seed).text

    assert text(42) == text(42)
    assert len({text(seed) for seed in range(8)}) > 1


def test_a_drawn_seed_is_named_and_gives_the_answer_again(model):
    first = model.generate("hello", max_tokens=30, temperature=1.5)
    other = model.generate("hello", max_tokens=30, temperature=1.5)

    again = model.generate("hello", max_tokens=30, temperature=1.5, seed=first.seed)

    assert again.tokens == first.tokens
    assert other.seed != first.seed


def test_an_answer_does_not_depend_on_neighbours(model):
    alone = {seed: model.generate("hello", max_tokens=40, seed=seed).tokens for seed in range(6)}
    together = {}

    def call(seed):
        together[seed] = model.generate("hello", max_tokens=40, seed=seed).tokens

    threads = [threading.Thread(target=call, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert together == alone


def test_a_stop_string_ends_before_it_and_is_named(model):
    whole = model.generate("hello", max_tokens=20, temperature=0).text
    stop = whole[4:7]

    stream = model.stream("hello", max_tokens=20, temperature=0, stop=[stop, "never comes"])
    text = "".join(chunk.text for chunk in stream)

    assert text == whole[: whole.index(stop)] == stream.completion.text
    assert (stream.completion.finish_reason, stream.completion.stop) == ("stop", stop)
    assert model.generate("hello", max_tokens=20, temperature=0, stop=stop).text == text


def test_text_held_back_for_a_stop_string_is_released_at_the_end(model):
    whole = model.generate("hello", max_tokens=8, temperature=0).text

    done = model.generate("hello", max_tokens=8, temperature=0, stop=[whole[-3:] + "X"])

    assert (done.text, done.finish_reason, done.stop) == (whole, "length", None)


def test_the_second_turn_finds_the_first_cached(model):
    messages = [{"role": "user", "content": "hello" * 20}]
    first = model.chat(messages, max_tokens=10, temperature=0)
    messages[0]["content"] += ">" + first.text + "more"

    second = model.chat(messages, max_tokens=10, temperature=0)

    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens >= first.usage.prompt_tokens
    with make_model() as cold:
        assert cold.chat(messages, max_tokens=10, temperature=0).tokens == second.tokens


def test_tools_and_variables_reach_the_template(model):
    ids = model.apply_template(
        [{"role": "user", "content": "a"}], tools=[{}], template_variables={"thinking": True}
    )

    assert set(model.detokenize(ids)) == set("athinkingtools>")


def test_an_empty_prompt_is_refused_unless_the_model_has_a_beginning(model):
    for empty in ("", []):
        with pytest.raises(InvalidParameterError, match="prompt"):
            model.generate(empty, max_tokens=1)
    assert model.generate("next", max_tokens=1).usage.prompt_tokens == 4

    with make_model(add_bos=True) as with_bos:
        assert with_bos.generate("", max_tokens=1).usage.prompt_tokens == 1


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(model):
    with pytest.raises(ContextOverflowError, match=r"600 tokens .*512"):
        model.generate("x" * 600)

    assert model.generate("next", max_tokens=1).text


def test_no_limit_ends_at_the_end_of_the_context():
    with make_model(n_ctx=64) as model:
        done = model.generate("hello", temperature=0, logit_bias={END: -100.0})

        assert done.finish_reason == "length"
        assert done.usage.total_tokens == 64


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_tokens": -1},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"logprobs": -1},
        {"logprobs": 10**9},
        {"stop": [""]},
        {"stop": ["x"] * 10_000},
        {"stop": ["x" * 1_000_000]},
        {"stop": [1]},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -2},
        {"top_p": 2.0},
        {"min_p": 2.0},
        {"repeat_penalty": 0.0},
        {"seed": -2},
        {"seed": 2**64},
        {"logit_bias": {N_VOCAB: 1.0}},
    ],
)
def test_an_argument_out_of_range_is_named_and_leaves_the_model_usable(model, arguments):
    with pytest.raises(InvalidParameterError, match=next(iter(arguments))):
        model.generate("hello", **arguments)

    assert model.generate("hello", max_tokens=2).tokens


@pytest.mark.parametrize("prompt", [[1.0], ["1"], [-1], [N_VOCAB], [None]])
def test_what_is_no_token_id_is_refused(model, prompt):
    with pytest.raises(InvalidParameterError, match="token id"):
        model.generate(prompt)


def test_numpy_ids_are_ids(model):
    ids = np.array(model.tokenize("hello"))

    assert (model.logits(ids) == model.logits(model.tokenize("hello"))).all()


def test_the_numbers_of_a_completion_fit_together(model):
    told = []
    done = model.generate(
        "x" * 100, max_tokens=10, temperature=0, progress=lambda *counts: told.append(counts)
    )

    assert told == [(0, 100, 0), (64, 100, 0), (100, 100, 0)]
    assert done.usage.prompt_tokens == 100
    assert done.timings.load_s == 1.5
    assert done.timings.prompt_s > 0
    assert str(done) == done.text
