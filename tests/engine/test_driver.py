"""The engine's thread: many callers, slow readers, cancels, failures, the end."""

import gc
import os
import random
import threading
import time
import weakref

import pytest

from edgeinfer.engine.driver import MOST_UNREAD, Driver
from edgeinfer.engine.events import Finished, Token
from edgeinfer.errors import (
    BackendError,
    ContextOverflowError,
    InvalidParameterError,
    ModelClosedError,
)
from tests.engine.fakes import answer, make_engine, make_sequence, prompt


def read(handle):
    return [event.id for event in handle if isinstance(event, Token)]


def test_a_handle_ends_with_its_finish(driver):
    handle = driver.submit(make_sequence(prompt(5), max_tokens=3))

    events = list(handle)

    assert isinstance(events[-1], Finished)
    assert handle.sequence.finish_reason == "length"
    assert list(handle) == []


def test_callers_on_many_threads_get_what_they_get_alone(driver):
    got = {}

    def call(seed):
        got[seed] = read(driver.submit(make_sequence(prompt(70, seed), max_tokens=20)))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got == {s: answer(make_engine(), prompt(70, s), max_tokens=20) for s in range(6)}


def test_a_slow_reader_pauses_its_sequence_and_loses_nothing(driver, engine):
    handle = driver.submit(make_sequence(prompt(5), max_tokens=100))
    while not handle.sequence.paused:
        time.sleep(0.001)
    ahead = handle.sequence.n_generated

    assert ahead <= MOST_UNREAD
    assert read(driver.submit(make_sequence(prompt(9), max_tokens=3))) == answer(
        make_engine(), prompt(9), max_tokens=3
    )
    assert read(handle) == answer(make_engine(), prompt(5), max_tokens=100)


def test_cancel_stops_within_the_step(driver, engine):
    engine.executable.gate = threading.Event()
    handle = driver.submit(make_sequence(prompt(100)))
    engine.executable.entered.wait()

    handle.cancel()

    list(handle)
    assert handle.sequence.finish_reason == "cancelled"


def test_cancelling_one_leaves_the_other_as_alone(driver, engine):
    engine.executable.gate = threading.Event()
    other = driver.submit(make_sequence(prompt(80), max_tokens=20))
    handle = driver.submit(make_sequence(prompt(100), max_tokens=20))
    engine.executable.entered.wait()
    handle.cancel()
    list(handle)
    engine.executable.gate.set()

    assert read(other) == answer(make_engine(), prompt(80), max_tokens=20)


def test_a_dropped_handle_frees_its_sequence(driver, engine):
    handle = driver.submit(make_sequence(prompt(5), max_tokens=400))
    next(handle)
    sequence = handle.sequence
    del handle
    gc.collect()

    read(driver.submit(make_sequence(prompt(6), max_tokens=1)))

    assert sequence.finish_reason == "cancelled"
    assert sequence.pages == []


def test_a_request_from_the_engines_own_thread_is_refused(driver):
    class Asking:
        def sample(self, logits, history, position):
            return driver.submit(make_sequence(prompt(5))).result().tokens[-1]

    sequence = make_sequence(prompt(5))
    sequence.sampler = Asking()
    with pytest.raises(InvalidParameterError, match="wait for itself"):
        driver.submit(sequence).result()


def test_a_sampler_that_ends_its_thread_ends_its_own_sequence_only(driver):
    class Exiting:
        def sample(self, logits, history, position):
            raise SystemExit

    sequence = make_sequence(prompt(5))
    sequence.sampler = Exiting()
    with pytest.raises(SystemExit):
        driver.submit(sequence).result()

    assert read(driver.submit(make_sequence(prompt(5)))) == answer(make_engine(), prompt(5))


def test_forgetting_what_is_over_disturbs_nobody(driver, engine):
    over = driver.submit(make_sequence(prompt(5), max_tokens=3))
    while over.sequence.finish_reason is None:
        time.sleep(0.001)
    engine.executable.gate = threading.Event()
    engine.executable.entered.clear()
    other = driver.submit(make_sequence(prompt(9), max_tokens=3))
    engine.executable.entered.wait()
    n_steps = len(engine.executable.steps)

    del over
    gc.collect()
    time.sleep(0.01)

    assert not engine.cancel.is_set
    engine.executable.gate.set()
    read(other)
    assert engine.executable.steps[n_steps - 1 : n_steps + 1] == [(9,), (1,)]


def test_a_failing_step_fails_those_in_it_and_the_next_request_runs(driver, engine):
    engine.executable.fail_with = MemoryError("no more")
    handle = driver.submit(make_sequence(prompt(5)))
    list(handle)
    engine.executable.fail_with = None

    assert handle.sequence.finish_reason == "error"
    assert isinstance(handle.sequence.error, MemoryError)
    assert read(driver.submit(make_sequence(prompt(5)))) == answer(make_engine(), prompt(5))


def test_a_refused_sequence_touches_nothing(driver):
    with pytest.raises(ContextOverflowError, match="600"):
        driver.submit(make_sequence(prompt(600)))

    assert read(driver.submit(make_sequence(prompt(5)))) == answer(make_engine(), prompt(5))


def test_hundreds_of_requests_in_little_memory_all_end_and_leave_nothing():
    engine = make_engine(n_ctx=512, n_pages=8)
    driver = Driver(engine)
    rng = random.Random(3)
    handles = [
        driver.submit(make_sequence(prompt(rng.randint(1, 400), seed), max_tokens=20))
        for seed in range(300)
    ]
    for handle in rng.sample(handles, 150):
        handle.cancel()
    reasons = {handle.result().finish_reason for handle in handles}

    assert reasons == {"length", "cancelled"}
    assert read(driver.submit(make_sequence(prompt(5)))) == answer(make_engine(), prompt(5))
    assert engine.scheduler.holdings.n_available == 8
    driver.close()


def test_close_ends_what_runs_and_frees_the_executable(driver, engine):
    engine.executable.gate = threading.Event()
    handle = driver.submit(make_sequence(prompt(100)))
    engine.executable.entered.wait()

    driver.close()
    driver.close()

    list(handle)
    assert isinstance(handle.sequence.error, ModelClosedError)
    assert engine.executable.closed == 1
    assert driver.is_stopped
    with pytest.raises(ModelClosedError):
        driver.submit(make_sequence(prompt(5)))


def test_nothing_of_a_finished_sequence_stays_in_the_driver(driver):
    handle = driver.submit(make_sequence(prompt(5)))
    read(handle)
    sequence = weakref.ref(handle)
    del handle

    assert sequence() is None
    assert driver._channels == {}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_clear_error(driver):
    child = os.fork()
    if child == 0:
        try:
            driver.submit(make_sequence(prompt(5)))
        except BackendError:
            driver.close()
            os._exit(0)
        os._exit(1)

    assert os.waitpid(child, 0)[1] == 0
    assert read(driver.submit(make_sequence(prompt(5)))) == answer(make_engine(), prompt(5))
