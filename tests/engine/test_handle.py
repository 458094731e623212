"""Handles in threads and event loops: deadlines, progress, results, closed loops."""

import asyncio
import threading
import time

import pytest

from edgeinfer.engine.asynchronous import AsyncEngine
from edgeinfer.engine.events import Finished, Token
from edgeinfer.errors import InvalidParameterError, ModelClosedError, NonFiniteError
from tests.engine.fakes import answer, make_engine, make_sequence, prompt


def expected(seed, n=70, max_tokens=20):
    return answer(make_engine(), prompt(n, seed), max_tokens=max_tokens)


def generated(sequence):
    return sequence.tokens[sequence.n_prompt :]


def test_a_result_is_the_whole_sequence(driver):
    handle = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))

    assert generated(handle.result()) == expected(1)
    assert generated(handle.result()) == expected(1)


def test_an_awaited_handle_is_the_whole_sequence(driver):
    async def main():
        handles = [driver.submit(make_sequence(prompt(70, s), max_tokens=20)) for s in range(5)]
        return [generated(done) for done in await asyncio.gather(*handles)]

    assert asyncio.run(main()) == [expected(seed) for seed in range(5)]


def test_events_come_in_an_async_for(driver):
    async def main():
        handle = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))
        return [event async for event in handle]

    events = asyncio.run(main())

    assert [e.id for e in events if isinstance(e, Token)] == expected(1)
    assert isinstance(events[-1], Finished)


def test_a_slow_async_reader_loses_nothing(driver):
    async def main():
        handle = driver.submit(make_sequence(prompt(5), max_tokens=60))
        ids = []
        async for event in handle:
            await asyncio.sleep(0.001)
            ids += [event.id] if isinstance(event, Token) else []
        return ids

    assert asyncio.run(main()) == answer(make_engine(), prompt(5), max_tokens=60)


def test_several_loops_and_threads_share_an_engine(driver):
    found = {}

    async def ask(seed):
        return generated(await driver.submit(make_sequence(prompt(70, seed), max_tokens=20)))

    def in_loop(seed):
        found[seed] = asyncio.run(ask(seed))

    def in_thread(seed):
        found[seed] = generated(
            driver.submit(make_sequence(prompt(70, seed), max_tokens=20)).result()
        )

    targets = [in_loop, in_thread] * 3
    threads = [threading.Thread(target=target, args=(s,)) for s, target in enumerate(targets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {seed: expected(seed) for seed in range(6)}


def test_a_cancelled_task_cancels_its_sequence(driver, engine):
    engine.executable.gate = threading.Event()
    sequence = make_sequence(prompt(70), max_tokens=20)

    async def main():
        task = asyncio.create_task(AsyncEngine(driver).run(sequence))
        while not engine.executable.entered.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    engine.executable.gate.set()
    driver.submit(make_sequence(prompt(5))).result()

    assert sequence.finish_reason == "cancelled"


def test_a_read_that_timed_out_lost_no_event(driver, engine):
    engine.executable.gate = threading.Event()

    async def main():
        handle = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))
        events = [await anext(handle)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(handle), 0.02)
        engine.executable.gate.set()
        return events + [event async for event in handle]

    ids = [e.id for e in asyncio.run(main()) if isinstance(e, Token)]

    assert ids == expected(1)


def test_a_handle_may_be_read_on_in_another_loop_or_thread(driver, engine):
    engine.executable.gate = threading.Event()
    handle = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))

    async def give_up():
        await anext(handle)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(handle), 0.01)

    asyncio.run(give_up())
    engine.executable.gate.set()

    assert generated(handle.result()) == expected(1)


def test_a_reader_whose_loop_is_closed_ends_its_own_sequence_only(driver, engine):
    engine.executable.gate = threading.Event()
    lost = make_sequence(prompt(70), max_tokens=200)
    handle = driver.submit(lost)
    loop = asyncio.new_event_loop()
    reading = loop.create_task(handle._result())
    loop.run_until_complete(asyncio.sleep(0.02))
    loop.close()
    engine.executable.gate.set()

    assert generated(
        driver.submit(make_sequence(prompt(70, 1), max_tokens=20)).result()
    ) == expected(1)
    assert lost.finish_reason == "cancelled"
    reading.get_coro().close()


def test_an_async_engine_closes_at_the_end_of_its_block(driver):
    async def main():
        async with AsyncEngine(driver) as engine:
            done = await engine.run(make_sequence(prompt(70, 1), max_tokens=20))
            with pytest.raises(InvalidParameterError):
                engine.submit(make_sequence([]))
        with pytest.raises(ModelClosedError):
            await engine.run(make_sequence(prompt(5)))
        return generated(done)

    assert asyncio.run(main()) == expected(1)
    assert driver.is_stopped


def test_closing_ends_an_async_reader_with_an_error(driver, engine):
    engine.executable.gate = threading.Event()

    async def main():
        handle = driver.submit(make_sequence(prompt(70), max_tokens=20))
        closing = asyncio.create_task(AsyncEngine(driver).close())
        with pytest.raises(ModelClosedError):
            await handle
        await closing

    asyncio.run(main())


def test_a_deadline_ends_with_what_there_is(driver, engine):
    handle = driver.submit(make_sequence(prompt(5), max_tokens=200))
    while handle.sequence.n_generated < 5:
        next(handle)
    engine.executable.gate = threading.Event()
    handle.sequence.deadline_s = time.monotonic() + 0.02

    done = handle.result()

    assert done.finish_reason == "deadline"
    assert generated(done) == answer(make_engine(), prompt(5), max_tokens=200)[: done.n_generated]
    assert done.n_generated >= 5


@pytest.mark.parametrize("is_async", [False, True])
def test_a_deadline_ends_a_step_that_runs_and_its_neighbours_lose_nothing(driver, engine, is_async):
    engine.executable.gate = threading.Event()
    other = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))
    handle = driver.submit(make_sequence(prompt(70), max_tokens=20), timeout_s=0.02)

    async def wait():
        return await handle

    done = asyncio.run(wait()) if is_async else handle.result()
    engine.executable.gate.set()

    assert done.finish_reason == "deadline"
    assert generated(other.result()) == expected(1)


def test_a_deadline_holds_for_who_does_not_read(driver, engine):
    sequence = make_sequence(prompt(5), max_tokens=400)
    handle = driver.submit(sequence, timeout_s=0.05)
    while sequence.finish_reason is None:
        time.sleep(0.001)

    assert sequence.finish_reason == "deadline"
    assert sequence.pages == []
    handle.result()


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_a_timeout_has_to_be_above_0(driver, timeout_s):
    with pytest.raises(InvalidParameterError, match="timeout_s"):
        driver.submit(make_sequence(prompt(5)), timeout_s=timeout_s)


def test_progress_is_told_to_who_reads(driver):
    told = []
    handle = driver.submit(
        make_sequence(prompt(100), max_tokens=1), progress=lambda *counts: told.append(counts)
    )
    handle.result()

    assert told == [(0, 100, 0), (64, 100, 0), (100, 100, 0)]


def test_a_progress_function_that_raises_ends_its_own_sequence_only(driver):
    def fail(*counts):
        raise ZeroDivisionError

    bad = driver.submit(make_sequence(prompt(70), max_tokens=400), progress=fail)
    good = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))
    with pytest.raises(ZeroDivisionError):
        bad.result()

    assert generated(good.result()) == expected(1)
    driver.submit(make_sequence(prompt(5))).result()
    assert bad.sequence.finish_reason == "cancelled"


def test_what_made_a_sequence_fail_is_raised_by_its_result(driver):
    class Failing:
        def sample(self, logits, history, position):
            raise NonFiniteError("logits: found NaN")

    sequence = make_sequence(prompt(5))
    sequence.sampler = Failing()

    with pytest.raises(NonFiniteError):
        driver.submit(sequence).result()


def test_steady_cancelling_does_not_keep_others_from_their_step(driver, engine):
    other = driver.submit(make_sequence(prompt(70, 1), max_tokens=20))
    ended = threading.Event()

    def disturb():
        while not ended.is_set():
            driver.cancel(make_sequence(prompt(3)))

    thread = threading.Thread(target=disturb)
    thread.start()
    done = other.result()
    ended.set()
    thread.join()

    assert generated(done) == expected(1)
