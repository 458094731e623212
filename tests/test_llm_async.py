"""The methods for event loops: the same answers, nothing blocked, cancelled with their tasks."""

import asyncio
import inspect
import time

import pytest

from edgeinfer.errors import ContextOverflowError, InvalidParameterError, NonFiniteError
from edgeinfer.llm import Model
from tests.fake_llm import END, make_model

NO_END = {END: -100.0}
SAMPLED = {"seed": 5, "temperature": 1.5, "top_k": 0, "max_tokens": 20}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def model():
    with make_model(n_pages=64) as model:
        yield model


def wait_until_free(model):
    """Wait until no sequence runs or waits."""
    end_s = time.monotonic() + 10
    while model._engine.scheduler.has_work:
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_awaited_answers_are_those_of_the_methods_without_a(model):
    async def main():
        return (
            await model.agenerate("hello", **SAMPLED),
            await model.achat(HELLO, **SAMPLED),
            await model.acomplete_many(["hello", "world"], n=2, **SAMPLED),
            await model.achat_many([HELLO], n=2, **SAMPLED),
        )

    text, chat, many, chats = asyncio.run(main())

    assert text.tokens == model.generate("hello", **SAMPLED).tokens
    assert chat.tokens == model.chat(HELLO, **SAMPLED).tokens
    whole = model.complete_many(["hello", "world"], n=2, **SAMPLED)
    assert [done.tokens for done in many] == [done.tokens for done in whole]
    assert [done.tokens for done in chats] == [
        done.tokens for done in model.chat_many([HELLO], n=2, **SAMPLED)
    ]


def test_a_stream_is_read_by_async_for_or_awaited(model):
    async def main():
        async with await model.astream("hello", echo=True, **SAMPLED) as stream:
            texts = [chunk.text async for chunk in stream]
        chat = await model.astream_chat(HELLO, **SAMPLED)
        return texts, stream.completion, await chat

    texts, done, chat = asyncio.run(main())

    assert "".join(texts) == done.text == "hello" + model.generate("hello", **SAMPLED).text
    assert chat.text == model.chat(HELLO, **SAMPLED).text


def test_the_loop_goes_on_while_the_model_works(model):
    async def main():
        task = asyncio.create_task(model.agenerate("hello", max_tokens=200, logit_bias=NO_END))
        n_turns = 0
        while not task.done():
            await asyncio.sleep(0)
            n_turns += 1
        return n_turns

    assert asyncio.run(main()) > 20


def test_a_cancelled_task_stops_the_model(model):
    async def main():
        stream = await model.astream("hello", overflow="shift", logit_bias=NO_END)
        task = asyncio.ensure_future(stream)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stream.completion

    done = asyncio.run(main())

    assert done.finish_reason == "cancelled"
    assert done.tokens
    wait_until_free(model)


def test_a_task_cancelled_while_it_opens_leaves_nothing_behind(model, monkeypatch):
    opened = []
    original = model._open_text

    def slow(*args):
        time.sleep(0.1)
        opened.append(original(*args))
        return opened[-1]

    monkeypatch.setattr(model, "_open_text", slow)

    async def main():
        task = asyncio.create_task(model.agenerate("hello", overflow="shift", logit_bias=NO_END))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.3)

    asyncio.run(main())

    assert opened[0].completion.finish_reason == "cancelled"
    wait_until_free(model)


def test_one_failure_of_many_ends_the_others(model):
    async def main():
        with pytest.raises(ContextOverflowError):
            await model.acomplete_many(["hello", "x" * 600], logit_bias=NO_END)
        with pytest.raises(InvalidParameterError, match="list of texts"):
            await model.acomplete_many("hello")
        model._engine.executable.fail_with = NonFiniteError("logits: NaN")
        with pytest.raises(NonFiniteError):
            await model.agenerate("hello")
        model._engine.executable.fail_with = None

    asyncio.run(main())
    wait_until_free(model)


def test_a_timeout_ends_with_what_there_is(model):
    done = model.generate("hello", overflow="shift", timeout_s=0.2, logit_bias=NO_END)

    assert done.finish_reason == "deadline"
    assert done.tokens
    assert model.generate("hello", timeout_s=60, max_tokens=2).finish_reason != "deadline"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": -1.0},
        {"timeout_s": float("nan")},
        {"timeout_s": "1"},
        {"priority": 1.0},
        {"priority": 10**6},
    ],
)
def test_times_and_priorities_out_of_range_are_named(model, options):
    with pytest.raises(InvalidParameterError, match=next(iter(options))):
        model.generate("hello", **options)


def test_priority_reaches_the_engine(model, monkeypatch):
    submitted = []
    original = model._driver.submit

    def submit(sequence, **options):
        submitted.append((sequence.priority, options["timeout_s"]))
        return original(sequence, **options)

    monkeypatch.setattr(model._driver, "submit", submit)
    model.generate("hello", priority=7, timeout_s=30, max_tokens=1)
    model.generate("hello", max_tokens=1)

    assert submitted == [(7, 30.0), (0, None)]


def test_cancelling_while_an_answer_shifts_ends_it(model):
    stream = model.stream("hello", overflow="shift", logit_bias=NO_END)
    for n_chunks, _ in enumerate(stream):
        if n_chunks == 700:  # the context holds 512
            stream.cancel()

    assert stream.completion.finish_reason == "cancelled"
    assert stream.completion.n_dropped > 0
    wait_until_free(model)


@pytest.mark.parametrize("name", ["generate", "stream", "complete_many", "chat", "stream_chat"])
def test_each_method_has_a_twin_with_the_same_arguments(name):
    method, twin = getattr(Model, name), getattr(Model, "a" + name)

    assert inspect.iscoroutinefunction(twin)
    assert list(inspect.signature(method).parameters) == list(inspect.signature(twin).parameters)
