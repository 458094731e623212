"""What is left out of prompts and answers that outgrow the context, and only where it was asked."""

import re

import pytest

import edgeinfer
from edgeinfer.errors import ContextOverflowError, InvalidParameterError
from edgeinfer.llm.conversation import fit_messages
from edgeinfer.overflow import Room, room_of, without_middle
from tests.engine.fakes import N_VOCAB
from tests.fake_llm import END, make_model

N_CTX = 128
NO_END = {END: -100.0}


@pytest.fixture
def model():
    with make_model(n_ctx=N_CTX) as model:
        yield model


def ids(n):
    return [i * 7 % (N_VOCAB - 5) for i in range(n)]


def test_an_error_with_both_numbers_is_the_default(model):
    for options in ({}, {"overflow": "error"}, {"overflow": None}):
        with pytest.raises(ContextOverflowError, match=r"found 200 tokens .*at most 127.* 128"):
            model.generate(ids(200), **options)


def test_an_unknown_way_is_named_with_the_known(model):
    with pytest.raises(InvalidParameterError, match=r"overflow: found 'cut'.*'truncate_middle'"):
        model.generate("x", overflow="cut")


@pytest.mark.parametrize(
    ("max_tokens", "room"), [(None, 96), (0, 127), (1, 127), (28, 100), (64, 64), (500, 64)]
)
def test_room_is_left_for_the_answer_up_to_half_of_the_context(max_tokens, room):
    assert room_of(N_CTX, max_tokens, "truncate_middle") == Room(room, room)
    assert room_of(N_CTX, max_tokens, "shift") == Room(127, room)


def test_the_middle_goes_and_both_ends_stay():
    assert without_middle(list(range(100)), Room(100, 8)) == list(range(100))
    assert without_middle(list(range(100)), Room(99, 8)) == [0, 1, 94, 95, 96, 97, 98, 99]


def test_a_cut_prompt_answers_as_the_prompt_it_became(model):
    prompt = ids(200)

    cut = model.generate(prompt, overflow="truncate_middle", max_tokens=28, temperature=0)

    alone = model.generate(prompt[:25] + prompt[-75:], max_tokens=28, temperature=0)
    assert cut.tokens == alone.tokens
    assert (cut.usage.prompt_tokens, cut.n_dropped) == (100, 100)
    assert alone.n_dropped == 0


def test_a_prompt_that_fits_is_not_cut(model):
    done = model.generate(ids(50), overflow="truncate_middle", max_tokens=5)

    assert (done.usage.prompt_tokens, done.n_dropped) == (50, 0)


def test_a_shifted_answer_goes_on_as_the_prompt_that_is_left(model):
    options = {"temperature": 0, "logit_bias": NO_END}
    prompt = ids(100)
    first = model.generate(prompt, **options)  # fills the context
    assert (len(first.tokens), first.finish_reason) == (28, "length")
    whole = prompt + list(first.tokens)
    rest = model.generate(whole[:32] + whole[-32:], max_tokens=12, **options)

    stream = model.stream(prompt, overflow="shift", max_tokens=40, **options)
    text = "".join(chunk.text for chunk in stream)

    done = stream.completion
    assert done.tokens == first.tokens + rest.tokens
    assert text == done.text == first.text + rest.text
    assert (done.finish_reason, done.n_dropped) == ("length", 64)
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (100, 40)


def test_shifting_again_and_again_reaches_the_length_that_was_asked_for(model):
    done = model.generate(
        ids(10), overflow="shift", max_tokens=500, logit_bias=NO_END, seed=1, logprobs=0
    )

    assert len(done.tokens) == len(done.logprobs) == 500
    assert done.finish_reason == "length"
    assert done.timings.tokens_per_s > 0


def test_random_numbers_do_not_come_again_after_a_shift(model):
    """Positions begin anew in the shifted sequence; the draws must not."""
    flat = dict.fromkeys(range(3, N_VOCAB), -100.0)
    options = {"temperature": 100.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logit_bias": flat}

    done = model.generate(ids(64), overflow="shift", max_tokens=190, seed=3, **options)

    # each shift leaves 64 tokens, so answers of 64 tokens follow one another
    parts = [done.tokens[i : i + 63] for i in (0, 64, 127)]
    assert len(set(parts)) == 3
    assert all(sum(a == b for a, b in zip(parts[0], p, strict=False)) < 50 for p in parts[1:])


def test_a_stop_string_is_found_across_a_shift(model):
    options = {"temperature": 0, "logit_bias": NO_END, "overflow": "shift", "max_tokens": 60}
    whole = model.generate(ids(100), **options).text
    stop = whole[25:31]  # the context is full after 28

    done = model.generate(ids(100), stop=stop, **options)

    assert done.stop is not None
    assert done.text == whole[: whole.index(stop)]


def test_a_model_of_two_rope_bases_counts_on_across_shifts(gemma3_path):
    with edgeinfer.load(gemma3_path, n_ctx=160) as model:
        done = model.generate("Count: 1, 2, 3, 4,", max_tokens=260, temperature=0, overflow="shift")

    found = [int(number) for number in re.findall(r"(\d+),", done.text)]
    assert done.n_dropped > 0
    assert found == list(range(5, 5 + len(found)))
    assert len(found) > 50


def lay_out(messages):
    return [len(messages)] * sum(len(m["content"]) for m in messages)


def turn(role, n):
    return {"role": role, "content": "x" * n}


CHAT = [
    turn("system", 10),
    *[turn("user", 20), turn("assistant", 30)] * 3,
    turn("user", 5),
]


@pytest.mark.parametrize(
    ("most", "n_left", "n_messages"), [(165, 165, 8), (164, 115, 6), (100, 65, 4), (15, 15, 2)]
)
def test_the_oldest_turns_go_whole_and_the_system_message_stays(most, n_left, n_messages):
    tokens, n_dropped = fit_messages(CHAT, lay_out, Room(most, most))

    assert tokens == [n_messages] * n_left
    assert n_dropped == 165 - n_left


def test_a_last_turn_that_is_too_long_alone_is_an_error_with_both_numbers():
    with pytest.raises(ContextOverflowError, match=r"found 15 tokens .*at most 14"):
        fit_messages(CHAT, lay_out, Room(14, 14))
    with pytest.raises(ContextOverflowError, match=r"found 9 tokens .*at most 8"):
        fit_messages([turn("user", 9)], lay_out, Room(8, 8))
    with pytest.raises(ContextOverflowError, match=r"found 9 tokens .*at most 8"):
        fit_messages([turn("system", 9)], lay_out, Room(8, 8))


def test_a_chat_is_cut_by_turns(model):
    turns = [turn("user", 40), turn("assistant", 40), turn("user", 40)]

    done = model.chat(turns, overflow="truncate_middle", max_tokens=10, temperature=0)

    alone = model.chat(turns[2:], max_tokens=10, temperature=0)
    assert done.tokens == alone.tokens
    assert done.n_dropped == 80
    with pytest.raises(ContextOverflowError):
        model.chat([*turns, turn("user", 40)])
