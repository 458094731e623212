"""What users of such software reported as faults, with the inputs of their reports.

One real model at its smallest is asked most of it; what other tests hold already is not here.
"""

import json
import random
from contextlib import closing

import numpy as np
import pytest

import edgeinfer
from edgeinfer.compat.llama_cpp import Llama, LlamaGrammar, LogitsProcessorList
from edgeinfer.compat.llama_cpp.llama_tokenizer import LlamaTokenizer
from edgeinfer.engine.driver import Driver
from edgeinfer.errors import ContextOverflowError, InvalidParameterError
from tests.engine.fakes import make_sequence
from tests.engine.fakes import prompt as fake_ids
from tests.engine.real import real_engine
from tests.fake_llm import END, make_model
from tests.text.conftest import spm

FRANCE = "The capital of France is"
PARIS = 7042  # with the space before it
FAMILY = "👩‍👩‍👧"
TEXTS = ["text", " text", "  text", "", "\n", "<pad>text<eos>", "a  b\n\n\n  c\t\td"]


@pytest.fixture(scope="module")
def llm(smollm2_path):
    llm = Llama(str(smollm2_path), n_ctx=512, verbose=False)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def model(llm):
    return llm.edgeinfer


@pytest.fixture(scope="module")
def gemma(gemma3_path):
    llm = Llama(str(gemma3_path), n_ctx=64, verbose=False)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def fragments(model):
    """Ids that stand for parts of characters only, unbiased among themselves."""
    return dict.fromkeys(model.tokenize("🔥👩龥"), 100.0)


def test_an_echoed_emoji_of_several_characters_streams_as_it_was(gemma):
    """https://github.com/abetlen/llama-cpp-python/issues/57"""
    options = {"echo": True, "temperature": 0, "max_tokens": 4}

    chunks = [chunk.text for chunk in gemma.edgeinfer.stream(FAMILY * 2, **options)]

    whole = gemma.edgeinfer.generate(FAMILY * 2, **options)
    assert whole.text.startswith(FAMILY * 2)
    assert "".join(chunks) == whole.text
    assert "\ufffd" not in "".join(chunks[:-1])


def test_broken_characters_at_any_seed_are_valid_text(model, fragments):
    """https://github.com/ggml-org/llama.cpp/pull/14937"""
    hot = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logit_bias": fragments}

    found = model.complete_many(["🔥" * 6], n=20, seed=1, max_tokens=10, logprobs=1, **hot)

    pieces = [b"".join(map(model.tokenizer.piece, done.tokens)) for done in found]
    assert [done.text for done in found] == [piece.decode(errors="replace") for piece in pieces]
    assert any("\ufffd" in done.text for done in found)
    assert {done.finish_reason for done in found} == {"length"}
    assert all(len(done.logprobs) == 10 for done in found)


def test_bytes_of_a_chats_logprobs_are_those_of_the_tokens(llm, fragments):
    """https://github.com/ggml-org/llama.cpp/pull/14937"""
    fire = llm.tokenize("🔥".encode())
    only_fire = {fire[0]: 100.0}

    answer = llm.create_chat_completion(
        [{"role": "user", "content": "🔥"}], max_tokens=2, logprobs=True, logit_bias=only_fire
    )

    (choice,) = answer["choices"]
    assert [bytes(e["bytes"]) for e in choice["logprobs"]["content"]] == [b"\xf0\x9f"] * 2
    assert choice["finish_reason"] == "length"
    assert set(choice["message"]["content"]) == {"\ufffd"}
    json.dumps(answer, ensure_ascii=False).encode()


def test_offsets_count_characters_where_one_takes_several_tokens(llm):
    """https://github.com/ggml-org/llama.cpp/pull/14937"""
    written = llm.tokenize("🔥 a b".encode())

    def write(ids, row):
        row[:] = -np.inf
        row[written[len(ids) - 3]] = 0
        return row

    options = {"logprobs": 0, "logits_processor": LogitsProcessorList([write])}
    whole = llm("one two three", max_tokens=5, **options)["choices"][0]
    cut = llm("one two three", max_tokens=5, stop=" b", **options)["choices"][0]
    pieces = llm("one two three", max_tokens=5, stream=True, **options)
    echoed = llm("🔥 a", max_tokens=1, echo=True, logprobs=0)["choices"][0]

    assert whole["text"] == "🔥 a b"
    assert whole["logprobs"]["tokens"] == ["", "", "", " a", " b"]
    assert whole["logprobs"]["text_offset"] == [13, 13, 13, 14, 16]
    assert (cut["text"], cut["logprobs"]["text_offset"]) == ("🔥 a", [13, 13, 13, 14])
    found = [piece["choices"][0]["logprobs"] for piece in pieces]
    assert [at for f in found if f for at in f["text_offset"]] == [13, 13, 13, 14, 16]
    assert echoed["logprobs"]["text_offset"][:5] == [0, 0, 0, 1, 3]
    assert echoed["logprobs"]["tokens"][:4] == ["", "", "", " a"]


@pytest.mark.parametrize("name", ["llm", "gemma"])
@pytest.mark.parametrize("special", [False, True])
def test_a_text_comes_back_from_its_ids(name, special, request):
    """https://github.com/abetlen/llama-cpp-python/issues/1531"""
    llm = request.getfixturevalue(name)

    for text in TEXTS:
        ids = llm.tokenize(text.encode(), add_bos=False, special=special)
        assert llm.detokenize(ids, special=special) == text.encode()
        if not special:
            assert llm.detokenize(llm.tokenize(text.encode())) == text.encode()


def test_a_text_comes_back_without_the_space_its_encoder_added():
    """https://github.com/abetlen/llama-cpp-python/issues/1531"""
    tokenizer = LlamaTokenizer(spm(["▁", "▁text", "text", "▁▁"]))

    for text in TEXTS:
        ids = tokenizer.tokenize(text.encode(), special=False)
        assert tokenizer.detokenize(ids) == text.encode()


def test_what_a_long_prompt_begins_with_is_never_lost_unasked(model):
    """https://github.com/ollama/ollama/issues/3839"""
    filler = "The weather was mild and the road was long. " * 100
    asked = f"The password is ANANAS-7734.\n{filler}\nQ: What is the password?\nA: The password is"
    n_tokens = len(model.tokenize(asked))

    with pytest.raises(ContextOverflowError, match=rf"found {n_tokens} tokens .*at most 511"):
        model.generate(asked)
    cut = model.generate(asked, overflow="truncate_middle", max_tokens=8, temperature=0)

    assert cut.text.startswith(" ANANAS-7734")
    assert cut.n_dropped == n_tokens - cut.usage.prompt_tokens > 0


def test_a_full_context_ends_the_answer_where_no_shift_was_asked_for(gemma):
    """https://github.com/ggml-org/llama.cpp/issues/12357"""
    done = gemma.edgeinfer.generate("Count: 1, 2, 3, 4,", temperature=0)

    assert done.text.startswith(" 5, 6, 7, 8, 9")
    assert (done.finish_reason, done.usage.total_tokens, done.n_dropped) == ("length", 64, 0)


def test_each_shift_frees_a_good_part_of_the_context():
    """https://github.com/ggml-org/llama.cpp/issues/3969"""
    options = {"overflow": "shift", "logit_bias": {END: -100.0}, "seed": 1}
    with make_model(n_ctx=128) as model:
        done = model.generate(fake_ids(126), max_tokens=500, **options)
        n_computed = sum(map(sum, model._engine.executable.steps))
        for name in ("n_keep", "n_discard"):  # the shift of llama.cpp that could not work
            with pytest.raises(TypeError, match=name):
                model.generate("x", **{name: 126})

    assert len(done.tokens) == 500
    assert n_computed < 126 + 500 + 64 * (500 // 64 + 1)


@pytest.mark.parametrize("n_ctx", [2, 3, 4, 5, 8])
def test_shifts_in_the_smallest_contexts_end(n_ctx):
    """https://github.com/ggml-org/llama.cpp/issues/3969"""
    options = {"overflow": "shift", "logit_bias": {END: -100.0}, "seed": 1}
    with make_model(n_ctx=n_ctx) as model:
        done = model.generate(fake_ids(n_ctx - 1), max_tokens=40, **options)
        endless = model.stream(fake_ids(n_ctx - 1), **options)
        read = [chunk for chunk, _ in zip(endless, range(5), strict=False)]
        endless.close()

    assert done.finish_reason == "length"
    assert 1 <= len(done.tokens) <= 40
    assert read


def test_hundreds_of_requests_for_little_memory_leave_all_of_it_free(tmp_path):
    """https://github.com/ggml-org/llama.cpp/issues/6603"""
    rng = random.Random(5)
    with real_engine(tmp_path, n_pages=8) as engine, closing(Driver(engine)) as driver:
        expected = driver.submit(make_sequence(fake_ids(100), max_tokens=9)).result().tokens
        handles = []
        for seed in range(300):
            ids = fake_ids(rng.randint(1, 300), seed)
            handles.append(driver.submit(make_sequence(ids, max_tokens=rng.randint(1, 30))))
            if rng.random() < 0.3:
                rng.choice(handles).cancel()
        reasons = {handle.result().finish_reason for handle in handles}
        last = driver.submit(make_sequence(fake_ids(100), max_tokens=9)).result().tokens

    assert reasons == {"length", "cancelled"}
    assert last == expected
    assert engine.scheduler.holdings.n_available == 8


def test_nothing_to_answer_is_refused_and_the_next_is_served(llm, model):
    """https://github.com/ggml-org/llama.cpp/issues/5246"""
    for ask in (
        lambda: model.generate(""),
        lambda: model.generate([]),
        lambda: model.chat([]),
        lambda: model.complete_many(["Hello", ""], max_tokens=1),
    ):
        with pytest.raises(InvalidParameterError, match=r"found (no|an empty|none)"):
            ask()
        assert model.generate(FRANCE, temperature=0, max_tokens=1).text == " Paris"
    with pytest.raises(ValueError, match="empty text"):
        llm("")
    assert model.chat([{"role": "user", "content": ""}], max_tokens=1).usage.completion_tokens == 1


def test_temperature_0_takes_the_likeliest_after_the_penalties_that_were_asked_for(model):
    """https://github.com/abetlen/llama-cpp-python/issues/878"""
    options = {"temperature": 0, "max_tokens": 8, "repeat_penalty": 1.3, "logprobs": 5}

    done = model.generate(FRANCE, **options)

    ids = model.tokenize(FRANCE)
    for token, entry in zip(done.tokens, done.logprobs, strict=True):
        raw = model.next_logits(ids)
        row = raw.copy()
        seen = list(set(ids))
        row[seen] = np.where(row[seen] > 0, row[seen] / np.float32(1.3), row[seen] * 1.3)
        assert token == row.argmax()
        assert entry.top[0][0] == raw.argmax()  # reported as the model has it
        ids.append(token)


def test_a_seed_is_used_told_and_unmoved_by_neighbours(model):
    """https://github.com/ggml-org/llama.cpp/issues/7381"""
    tweet, hot = "Write a tweet", {"temperature": 0.9, "max_tokens": 8}
    first, other = (model.generate(tweet, seed=-1, **hot) for _ in range(2))
    alone = model.generate(tweet, seed=42, **hot)

    together = model.complete_many([FRANCE, tweet, "Hello"], n=2, seed=42, **hot)

    assert first.seed != other.seed
    assert model.generate(tweet, seed=first.seed, **hot).tokens == first.tokens
    assert alone.seed == 42
    assert together[2].tokens == alone.tokens != together[3].tokens


def test_equal_requests_are_answered_equally_alone_together_and_again(smollm2_path):
    """https://github.com/ggml-org/llama.cpp/issues/7052"""
    prompt = "One two three four five six seven eight nine ten. " * 8
    answers, rows = set(), set()
    for n_threads in (1, 8):
        with edgeinfer.load(smollm2_path, n_ctx=128, n_threads=n_threads) as model:
            options = {"temperature": 0, "max_tokens": 12}
            found = model.complete_many([prompt] * 8, **options)
            found.append(model.generate(prompt, **options))
            assert found[-1].usage.cached_tokens > 0
            answers |= {done.tokens for done in found}
            rows.add(model.next_logits([*model.tokenize(prompt), 30]).tobytes())

    assert len(answers) == len(rows) == 1


@pytest.mark.parametrize("key", [PARIS, str(PARIS)])
def test_a_banned_id_never_comes_and_a_forced_one_always(model, key):
    """https://github.com/ggml-org/llama.cpp/issues/19699"""
    greedy = {"temperature": 0, "max_tokens": 3}
    assert model.generate(FRANCE, **greedy).tokens[0] == PARIS

    assert PARIS not in model.generate(FRANCE, logit_bias={key: -100}, **greedy).tokens
    hot = {"temperature": 5.0, "top_k": 0, "max_tokens": 3}
    assert PARIS not in model.generate(FRANCE, logit_bias={key: -100}, seed=1, **hot).tokens
    assert set(model.generate(FRANCE, logit_bias={key: 100}, **greedy).tokens) == {PARIS}


@pytest.mark.parametrize(
    "bias", [{49152: 1}, {"49152": 1}, {"abc": 1}, {"7042-100": 1}, "7042-100"]
)
def test_a_bias_of_no_token_is_refused(model, bias):
    """https://github.com/ggml-org/llama.cpp/issues/19699"""
    with pytest.raises(InvalidParameterError, match="logit_bias: found"):
        model.generate(FRANCE, logit_bias=bias)


@pytest.mark.parametrize("name", ["llm", "gemma"])
def test_json_ends_where_its_object_does(name, request):
    """https://github.com/ollama/ollama/issues/2577"""
    question = "Reply with only an example JSON object.\n"
    llm = request.getfixturevalue(name)
    pieces = llm.edgeinfer.tokenizer.pieces()
    newlines = {id: 20.0 for id, piece in enumerate(pieces) if piece and not piece.strip(b"\n")}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    grammar = LlamaGrammar.from_json_schema(json.dumps(schema))
    for bias in (None, newlines):
        (answer,) = llm(question, grammar=grammar, logit_bias=bias, max_tokens=30)["choices"]

        assert answer["finish_reason"] == "stop"
        assert set(json.loads(answer["text"])) == {"a"}


@pytest.mark.parametrize("name", ["llm", "gemma"])
def test_a_class_of_emoji_is_met_by_tokens_that_hold_parts_of_them(name, request):
    """https://github.com/ggml-org/llama.cpp/issues/2501"""
    grammar = LlamaGrammar.from_string("root ::= [😀-🙏❤]{3}")
    llm = request.getfixturevalue(name)
    for seed in range(3):
        (answer,) = llm("Happy:", grammar=grammar, temperature=1.5, seed=seed)["choices"]

        assert answer["finish_reason"] == "stop"
        assert len(answer["text"]) == 3
        assert all("😀" <= character <= "🙏" or character == "❤" for character in answer["text"])


def test_guesses_change_nothing_of_an_answer_that_keeps_to_a_schema(smollm2_path):
    people = {"type": "array", "minItems": 3, "maxItems": 3, "items": {
        "type": "object", "properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"enum": [1, 2]}},
        "required": ["name", "age"], "additionalProperties": False}}  # fmt: skip
    prompt = '[{"name": "Ada", "age": 1}, {"name": "Bob", "age": 2}]\n' * 3
    answers = []
    for speculate in ("auto", False):
        with edgeinfer.load(smollm2_path, n_ctx=512, speculate=speculate) as model:
            if model._engine._guesser is not None:
                model._engine._guesser._cost.seconds = lambda n_tokens: 1.0  # everything pays
            options = {"json_schema": people, "max_tokens": 100, "seed": 3, "temperature": 0.8}
            answers += model.complete_many([prompt, "x"], **options)
    guessing, other, *plain = answers

    assert guessing.timings.accepted_tokens > 0
    assert [guessing.tokens, other.tokens] == [answer.tokens for answer in plain]
    assert len(json.loads(guessing.text)) == 3
