"""The stream of an answer: its pieces, its stop strings, its end; on a model of hashes."""

import threading

import pytest

from edgeinfer.completion import CompletionStream
from edgeinfer.engine.driver import Driver
from edgeinfer.errors import InvalidParameterError, NonFiniteError
from tests.engine.fakes import answer, make_engine, make_sequence, prompt


class Letters:
    """Text of one letter an id, two ids a letter where `slow`; one letter may stop."""

    def __init__(self, stop=None, slow=False):
        self.stopped_by = None
        self.stop = stop
        self.slow = slow
        self.held = ""

    def push(self, token_id):
        letter = chr(200 + token_id)
        if letter == self.stop:
            self.stopped_by = letter
            return ""
        if self.slow and not self.held:
            self.held = letter
            return ""
        text, self.held = self.held + letter, ""
        return text

    def finish(self):
        return self.held


@pytest.fixture
def engine():
    return make_engine()


@pytest.fixture
def driver(engine):
    driver = Driver(engine)
    yield driver
    if engine.executable.gate is not None:
        engine.executable.gate.set()
    driver.close()


def open_stream(driver, text=None, progress=None, **options):
    handle = driver.submit(make_sequence(prompt(5), **options))
    return CompletionStream(
        handle, text or Letters(), seed=7, load_s=0.5, progress=progress, owner=None
    )


def letters(ids):
    return "".join(chr(200 + id) for id in ids)


IDS = answer(make_engine(), prompt(5), max_tokens=9)


@pytest.mark.parametrize("slow", [False, True])
def test_chunks_joined_are_the_text_and_their_ids_the_tokens(driver, slow):
    stream = open_stream(driver, Letters(slow=slow), max_tokens=9)

    chunks = list(stream)

    done = stream.completion
    assert "".join(chunk.text for chunk in chunks) == done.text == letters(IDS)
    assert [id for chunk in chunks for id in chunk.tokens] == list(done.tokens) == IDS
    assert (done.finish_reason, done.stop, done.seed) == ("length", None, 7)


def test_usage_counts_tokens_and_not_chunks(driver):
    stream = open_stream(driver, Letters(slow=True), max_tokens=9)

    n_chunks = len(list(stream))

    assert n_chunks == 5
    usage = stream.completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 9, 14)


def test_a_stop_string_ends_the_answer_before_it(driver):
    at = next(i for i in range(1, 9) if IDS[i] not in IDS[:i])
    stream = open_stream(driver, Letters(stop=letters([IDS[at]])), max_tokens=9)

    text = "".join(chunk.text for chunk in stream)

    assert text == stream.completion.text == letters(IDS[:at])
    assert stream.completion.finish_reason == "stop"
    assert stream.completion.stop == letters([IDS[at]])
    assert list(stream.completion.tokens) == IDS[: at + 1]


def test_closing_keeps_what_was_read(driver):
    stream = open_stream(driver, max_tokens=400)
    first = next(stream)

    stream.close()
    stream.close()

    assert stream.completion.text == first.text
    assert stream.completion.finish_reason == "cancelled"
    assert list(stream) == []


def test_closing_at_the_end_changes_nothing(driver):
    with open_stream(driver, max_tokens=3) as stream:
        list(stream)

    assert stream.completion.finish_reason == "length"


def test_cancel_from_another_thread_ends_the_iteration(driver):
    stream = open_stream(driver, max_tokens=500)
    first = next(stream)
    threading.Thread(target=stream.cancel).start()

    text = first.text + "".join(chunk.text for chunk in stream)

    assert stream.completion.text == text
    assert stream.completion.finish_reason == "cancelled"


def test_an_interrupted_reader_leaves_the_model_usable(driver, engine):
    def interrupt(*counts):
        raise KeyboardInterrupt

    stream = open_stream(driver, progress=interrupt, max_tokens=9)

    with pytest.raises(KeyboardInterrupt):
        next(stream)

    assert stream.completion.finish_reason == "cancelled"
    again = open_stream(driver, max_tokens=9)
    list(again)
    assert list(again.completion.tokens) == IDS


def test_the_completion_is_there_at_the_end_only(driver):
    stream = open_stream(driver, max_tokens=9)

    with pytest.raises(InvalidParameterError, match="not at its end"):
        _ = stream.completion


def test_what_made_the_model_fail_is_raised(driver, engine):
    engine.executable.fail_with = NonFiniteError("logits: found NaN")
    stream = open_stream(driver, max_tokens=9)

    with pytest.raises(NonFiniteError):
        list(stream)

    with pytest.raises(StopIteration):
        next(stream)


def test_progress_is_told_in_the_readers_thread(driver):
    told = []
    stream = open_stream(
        driver,
        progress=lambda *counts: told.append((*counts, threading.get_ident())),
        max_tokens=1,
    )

    list(stream)

    assert told == [(0, 5, 0, threading.get_ident()), (5, 5, 0, threading.get_ident())]


def test_logprobs_are_there_when_asked_for(driver):
    stream = open_stream(driver, max_tokens=3, n_logprobs=2)
    list(stream)
    without = open_stream(driver, max_tokens=3)
    list(without)

    assert [entry.token for entry in stream.completion.logprobs] == IDS[:3]
    assert all(len(entry.top) == 2 for entry in stream.completion.logprobs)
    assert without.completion.logprobs is None
