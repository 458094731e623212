"""The class users hold: arguments, streams, threads, the end; on a model of hashes."""

import gc
import inspect
import subprocess
import sys
import threading
import weakref
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import (
    ContextOverflowError,
    InvalidParameterError,
    ModelClosedError,
    ResourceError,
)
from edgeinfer.llm import Model
from tests.engine.fakes import N_VOCAB, make_engine

PIECES = [bytes([32 + id]) for id in range(N_VOCAB - 5)]
PIECES += ["🔥".encode()[:2], "🔥".encode()[2:3], "🔥".encode()[3:], b"<end>", b"<bos>"]
END, BOS = N_VOCAB - 2, N_VOCAB - 1


class FakeTokenizer:
    """One id a printable ASCII character, three an emoji."""

    n_vocab = N_VOCAB
    stop_ids = frozenset([END])
    leading_space = False

    def __init__(self, add_bos=False):
        self.add_bos = add_bos

    def encode(self, text, *, add_special=True, parse_special=False):
        head = [BOS] if add_special and self.add_bos else []
        ids = [ord(c) - 32 for c in text.replace("<end>", "") if " " <= c <= "{"]
        return head + ids + [END] * (parse_special and "<end>" in text)

    def encode_chat(self, messages, *, add_generation_prompt=True, **variables):
        text = "".join(m["content"] for m in messages) + "".join(variables)
        return self.encode(text + ">" * add_generation_prompt)

    def decode(self, ids):
        return b"".join(PIECES[id] for id in ids).decode(errors="replace")

    def piece(self, token_id):
        return PIECES[token_id]

    def is_control(self, token_id):
        return token_id in (END, BOS)


class FakeFile:
    path = Path("fake.gguf")
    closed = 0
    changed = False

    @property
    def metadata(self):
        if self.closed:
            raise ModelClosedError("fake.gguf: the file is closed")
        return {"general.architecture": "fake"}

    def check_unchanged(self):
        if self.changed:
            raise ResourceError("fake.gguf: the model file changed on disk")

    def close(self):
        self.closed += 1


def make_model(*, add_bos=False, **engine_options):
    engine = make_engine(**engine_options)
    return Model(FakeFile(), FakeTokenizer(add_bos), engine, SamplingParams(), load_s=1.5)


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


def test_a_changed_file_is_noticed(model):
    model._file.changed = True

    with pytest.raises(ResourceError, match="changed on disk"):
        model.generate("hello")


def test_a_closed_model_says_so_and_closes_twice():
    model = make_model()
    file, executable = model._file, model._engine.executable
    model.close()
    model.close()

    assert (file.closed, executable.closed) == (1, 1)
    for use in (
        lambda: model.generate("x"),
        lambda: model.stream("x"),
        lambda: model.chat([{"role": "user", "content": "x"}]),
        lambda: model.tokenize("x"),
        lambda: model.detokenize([1]),
        lambda: model.logits([1]),
        lambda: model.metadata,
    ):
        with pytest.raises(ModelClosedError, match="closed"):
            use()


def test_closing_while_another_thread_generates_ends_it_with_an_error():
    model = make_model()
    model._engine.executable.gate = threading.Event()
    raised = []

    def call():
        try:
            model.generate("hello")
        except ModelClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    model._engine.executable.entered.wait()
    model.close()
    thread.join()

    assert len(raised) == 1


def test_a_forgotten_model_is_freed():
    model = make_model()
    model.generate("hello", max_tokens=2)
    executable, gone = model._engine.executable, weakref.ref(model)
    del model
    gc.collect()

    assert gone() is None
    assert executable.closed == 1


def test_a_stream_keeps_its_model_and_a_forgotten_stream_frees_its_pages(model):
    stream = make_model().stream("hello", max_tokens=20, temperature=0)
    assert len("".join(chunk.text for chunk in stream)) > 0

    abandoned = model.stream("hello", max_tokens=400)
    next(abandoned)
    del abandoned
    gc.collect()
    model.generate("other", max_tokens=1)

    scheduler = model._engine.scheduler
    assert scheduler.running == []
    while scheduler.prefixes.evict():
        pass
    assert scheduler.pool.n_free == scheduler.pool.n_pages


def test_the_interpreter_ends_quietly_with_a_model_and_a_stream_alive():
    script = (
        "from tests.test_llm import make_model\n"
        "model = make_model()\n"
        "stream = model.stream('hello', max_tokens=400)\n"
        "next(stream)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_raised_in_a_waiting_call_and_the_model_goes_on():
    script = """
import os, signal, threading
from tests.test_llm import make_model
model = make_model()
executable = model._engine.executable
executable.gate = threading.Event()

def interrupt():
    executable.entered.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    model.generate("hello")
except KeyboardInterrupt:
    print("interrupted")
executable.gate.set()
print(len(model.generate("hello", max_tokens=4, temperature=0).tokens))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout.split(), done.stderr) == (["interrupted", "4"], "")


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
