"""Several prompts and several answers in one call; echoed prompts."""

import inspect

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, NonFiniteError
from edgeinfer.llm import Model
from tests.fake_llm import END, make_model, started_at_once

PROMPTS = ["hello", "a longer prompt " * 5, [1, 2, 3], "x"]
SAMPLED = {"seed": 5, "temperature": 1.5, "top_k": 0, "max_tokens": 20}


@pytest.fixture
def model():
    with make_model(n_pages=64) as model:
        yield model


def test_answers_together_equal_answers_alone(model):
    together = started_at_once(model, len(PROMPTS), lambda: model.complete_many(PROMPTS, **SAMPLED))

    assert [done.tokens for done in together] == [
        model.generate(prompt, **SAMPLED).tokens for prompt in PROMPTS
    ]
    steps = model._engine.executable.steps
    assert any(len(step) == len(PROMPTS) for step in steps)


def test_choices_differ_and_are_those_of_their_number(model):
    found = model.complete_many(["hello", "world"], n=3, **SAMPLED)

    alone = [
        model.generate(prompt, choice=i, **SAMPLED)
        for prompt in ("hello", "world")
        for i in range(3)
    ]
    assert [done.tokens for done in found] == [done.tokens for done in alone]
    assert len({done.tokens for done in found}) == 6
    later = model.complete_many(["hello"], n=1, choice=2, **SAMPLED)
    assert later[0].tokens == found[2].tokens


def test_conversations_are_answered_together(model):
    conversations = [[{"role": "user", "content": text}] for text in ("one", "two", "three")]

    found = model.chat_many(conversations, n=2, **SAMPLED)

    assert [done.text for done in found] == [
        model.chat(c, choice=i, **SAMPLED).text for c in conversations for i in range(2)
    ]


def test_more_prompts_than_run_at_a_time(model, monkeypatch):
    monkeypatch.setattr("edgeinfer.llm.answering.MOST_TOGETHER", 2)

    found = model.complete_many(["hello"] * 5, seed=1, max_tokens=4)

    assert len({done.tokens for done in found}) == 1
    assert len(found) == 5
    assert max(len(step) for step in model._engine.executable.steps) <= 2


def test_more_than_the_pages_hold_wait_for_each_other_and_lose_nothing():
    prompts = [f"hello {i} " * 4 for i in range(10)]
    long = SAMPLED | {"max_tokens": 150, "logit_bias": {END: -100.0}}
    with make_model(n_ctx=256, n_pages=64) as model:
        alone = [model.generate(prompt, **long).tokens for prompt in prompts]

    with make_model(n_ctx=256, n_pages=5) as model:
        found = model.complete_many(prompts, **long)

    assert [done.tokens for done in found] == alone
    assert {len(done.tokens) for done in found} == {150}


def test_nothing_to_do_is_nothing(model):
    assert model.complete_many([]) == model.chat_many([]) == []


@pytest.mark.parametrize("n", [0, 129, 1.0, True, None])
def test_a_number_of_answers_out_of_range_is_refused(model, n):
    with pytest.raises(InvalidParameterError, match=r"n: found .*1 to 128"):
        model.complete_many(["x"], n=n)


def test_one_text_in_place_of_a_list_is_refused(model):
    with pytest.raises(InvalidParameterError, match="a list of texts"):
        model.complete_many("hello")


def test_one_failure_ends_all_and_the_model_goes_on(model):
    with pytest.raises(InvalidParameterError, match=r"prompt: token id: found -1"):
        model.complete_many(["hello", [-1], "world"], max_tokens=100)
    model._engine.executable.fail_with = NonFiniteError("logits: NaN")
    with pytest.raises(NonFiniteError):
        model.complete_many(["hello", "world"])
    model._engine.executable.fail_with = None

    assert model.generate("hello", max_tokens=3, logit_bias={95: -100}).usage.completion_tokens == 3


def test_echo_puts_the_prompt_before_the_answer(model):
    options = {"max_tokens": 5, "temperature": 0}
    plain = model.generate("hello", **options)

    stream = model.stream("hello", echo=True, **options)
    chunks = list(stream)

    assert stream.completion.text == "hello" + plain.text == "".join(c.text for c in chunks)
    assert (chunks[0].text, chunks[0].tokens) == ("hello", ())
    assert stream.completion.tokens == plain.tokens
    assert stream.completion.prompt_logprobs is None
    assert (
        model.generate(model.tokenize("hello"), echo=True, **options).text == "hello" + plain.text
    )
    assert "hello" not in model.generate("hello", echo=False, **options).text


def test_echo_with_logprobs_scores_the_prompt(model):
    done = model.generate("hello", echo=True, logprobs=2, max_tokens=0)

    ids = model.tokenize("hello")
    assert done.text == "hello"
    assert done.logprobs == ()
    assert done.prompt_logprobs[0] is None
    assert [s.token for s in done.prompt_logprobs[1:]] == ids[1:]
    rows = model.logits(ids)
    for scored, row in zip(done.prompt_logprobs[1:], rows, strict=False):
        assert scored.top[0][0] == row.argmax()
        assert scored.top[0][1] - scored.logprob == pytest.approx(
            float(row.max()) - float(row[scored.token])
        )


def test_scores_of_an_answer_are_those_of_the_same_tokens_in_a_prompt(model):
    done = model.generate("hello", logprobs=3, max_tokens=6, seed=2)

    whole = model.tokenize("hello") + list(done.tokens)
    again = model.generate(whole, echo=True, logprobs=3, max_tokens=0)

    assert again.prompt_logprobs[-6:] == done.logprobs


@pytest.mark.parametrize("name", ["generate", "stream", "complete_many", "chat", "chat_many"])
def test_an_unknown_argument_is_a_type_error_with_a_hint(model, name):
    with pytest.raises(TypeError, match=r"unexpected .* 'temprature'; did you mean 'temperature'"):
        getattr(model, name)([], temprature=1.0)
    parameters = inspect.signature(getattr(Model, name)).parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def test_a_processor_edits_the_logits_and_sees_the_ids_so_far(model):
    seen = []

    def only_3(ids, logits):
        seen.append(list(ids))
        assert logits.shape == (97,)
        logits[:] = -np.inf
        logits[3] = 0
        return logits

    done = model.generate([1, 2], logits_processor=only_3, max_tokens=3, logprobs=1)

    assert done.tokens == (3, 3, 3)
    assert seen == [[1, 2], [1, 2, 3], [1, 2, 3, 3]]
    raw = model.generate([1, 2, 3], echo=True, logprobs=1, max_tokens=0).prompt_logprobs
    assert done.logprobs[0] == raw[2]  # of the model, not of the processor


@pytest.mark.parametrize(
    ("processor", "error"),
    [(lambda ids, logits: logits[:5], "returned an array"), (lambda ids, logits: 1 / 0, "zero")],
)
def test_a_processor_that_fails_ends_its_own_request(model, processor, error):
    with pytest.raises((InvalidParameterError, ZeroDivisionError), match=error):
        model.generate("hello", logits_processor=processor)

    assert model.generate("hello", max_tokens=2).tokens


def test_chunks_carry_the_scores_of_their_tokens(model):
    stream = model.stream("hello", max_tokens=20, seed=1, logprobs=2, stop=["never"])
    chunks = list(stream)

    assert [s for c in chunks for s in c.logprobs] == list(stream.completion.logprobs)
    assert all(len(c.logprobs) == len(c.tokens) for c in chunks)


def test_a_template_takes_the_place_of_the_models(model):
    messages = [{"role": "user", "content": "hello"}]
    options = {"temperature": 0, "max_tokens": 5}

    done = model.chat(messages, template="as: ", **options)

    assert done.tokens == model.generate("as: hello", **options).tokens
    assert done.tokens != model.chat(messages, **options).tokens


def test_the_last_row_alone_is_that_of_all_rows_and_computes_what_is_new(model):
    ids = model.tokenize("hello " * 30)
    whole = model.logits(ids)[-1]

    assert (model.next_logits(ids) == whole).all()
    steps = model._engine.executable.steps
    del steps[:]
    longer = model.next_logits([*ids, 5])
    assert sum(map(sum, steps)) < 70
    assert (longer == model.logits([*ids, 5])[-1]).all()
