"""Disturb one engine in every way callers have, for as long as asked, and check what must hold.

Threads and tasks submit, read slowly, cancel, run into deadlines, drop handles, and bring samplers
and progress functions that raise. Whoever is not disturbed gets the tokens it gets alone; at the
end all pages and snapshots are free, no thread is left, and memory has not grown.

    python -m tests.engine.soak --seconds 600
"""

import argparse
import asyncio
import gc
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from edgeinfer.engine.asynchronous import AsyncEngine
from edgeinfer.engine.driver import Driver
from edgeinfer.engine.handle import Handle
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import EdgeInferError
from tests.engine.fakes import Argmax, prompt, run
from tests.engine.real import real_engine

N_PROMPTS = 24
MOST_TOKENS = 60
N_THREADS, N_TASKS = 3, 6
BEGINNINGS = [prompt(n, seed=n) for n in (0, 70, 150)]


class Flawed(Argmax):
    """A sampler that fails at its third token."""

    def sample(self, logits, history, position):
        self.n = getattr(self, "n", 0) + 1
        if self.n == 3:
            raise ZeroDivisionError
        return super().sample(logits, history, position)


class Soak:
    """What the callers share: the prompts, the right answers, what happened."""

    def __init__(self, driver: Driver, answers: list[list[int]], prompts: list[list[int]]) -> None:
        self.driver = driver
        self.answers = answers
        self.prompts = prompts
        self.ended = threading.Event()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def request(self, rng: random.Random) -> tuple[int, Sequence, float | None]:
        """Return a random request: the number of its prompt, itself, its timeout."""
        number = rng.randrange(len(self.prompts))
        sampler = Flawed() if rng.random() < 0.05 else Argmax()
        sequence = Sequence(
            self.prompts[number],
            sampler,
            max_tokens=rng.randint(0, MOST_TOKENS),
            priority=rng.choice((-1, 0, 0, 0, 1)),
        )
        return number, sequence, rng.uniform(0.001, 0.3) if rng.random() < 0.15 else None

    def check(self, number: int, sequence: Sequence, why: str) -> None:
        """Compare what a sequence has with what it would have alone."""
        found = sequence.tokens[sequence.n_prompt :]
        if found != self.answers[number][: len(found)]:
            self.wrong.append(f"prompt {number}: other tokens after {why}")
        reason = sequence.finish_reason
        if reason == "length" and len(found) != sequence.max_tokens:
            self.wrong.append(f"prompt {number}: {len(found)} tokens of {sequence.max_tokens}")
        self.counts[f"{why}: {reason}"] += 1

    def thread(self, seed: int) -> None:
        """Be a caller on a thread until the end."""
        rng = random.Random(seed)
        while not self.ended.is_set():
            number, sequence, timeout_s = self.request(rng)
            why = rng.choice(("read", "read", "cancel", "drop", "progress"))
            fails = why == "progress"
            handle = self.driver.submit(
                sequence, timeout_s=timeout_s, progress=_raise if fails else None
            )
            with suppress(EdgeInferError, ZeroDivisionError):
                self._read(handle, rng, why)
            del handle
            if why in ("read", "cancel"):
                self.check(number, sequence, why)

    def _read(self, handle: Handle, rng: random.Random, why: str) -> None:
        if why in ("cancel", "drop"):
            for _ in zip(range(rng.randint(0, 20)), handle, strict=False):
                pass
            if why == "drop":
                return
            handle.cancel()
        if rng.random() < 0.1:
            time.sleep(rng.uniform(0, 0.05))  # so long that it may be paused
        handle.result()

    async def task(self, seed: int) -> None:
        """Be a caller in an event loop until the end."""
        rng = random.Random(seed)
        engine = AsyncEngine(self.driver)
        while not self.ended.is_set():
            number, sequence, timeout_s = self.request(rng)
            why = rng.choice(("await", "await", "cancelled task"))
            running = asyncio.create_task(engine.run(sequence, timeout_s=timeout_s))
            if why == "cancelled task":
                await asyncio.sleep(rng.uniform(0, 0.03))
                running.cancel()
            try:
                await running
            except (EdgeInferError, ZeroDivisionError, asyncio.CancelledError):
                pass
            else:
                self.check(number, sequence, why)

    async def tasks(self) -> None:
        """Run the callers of one event loop."""
        await asyncio.gather(*(self.task(100 + seed) for seed in range(N_TASKS)))


def _raise(*counts: int) -> None:
    raise ZeroDivisionError


def prompts() -> list[list[int]]:
    """Return prompts of many lengths, of which several begin alike."""
    return [
        BEGINNINGS[i % len(BEGINNINGS)] + prompt(1 + 17 * (i % 7), seed=1000 + i)
        for i in range(N_PROMPTS)
    ]


def answer_of(driver: Driver, tokens: list[int]) -> list[int]:
    """Return what follows a prompt."""
    done = driver.submit(Sequence(tokens, Argmax(), max_tokens=MOST_TOKENS)).result()
    return done.tokens[done.n_prompt :]


def soak(folder: Path, seconds: float, arch: str = "llama") -> tuple[Soak, list[int]]:
    """Disturb an engine for so long; return what happened, and the memory used meanwhile.

    `arch` is that of a tiny model; a hybrid also gets few snapshots of its state.

    Raises AssertionError for what must hold at the end.
    """
    answers = []
    for tokens in prompts():
        with real_engine(folder, arch=arch) as engine:
            sequence = Sequence(tokens, Argmax(), max_tokens=MOST_TOKENS)
            run(engine, sequence)
            answers.append(sequence.tokens[sequence.n_prompt :])
    n_threads = threading.active_count()
    with real_engine(folder, arch=arch, n_pages=12, n_snapshots=12, n_threads=2) as engine:
        driver = Driver(engine)
        state = Soak(driver, answers, prompts())
        callers = [threading.Thread(target=state.thread, args=(s,)) for s in range(N_THREADS)]
        callers.append(threading.Thread(target=lambda: asyncio.run(state.tasks())))
        for caller in callers:
            caller.start()
        memory = []
        for _ in range(10):
            time.sleep(seconds / 10)
            memory.append(psutil.Process().memory_info().rss)
        state.ended.set()
        for caller in callers:
            caller.join()
        gc.collect()  # drops the last handles
        assert [answer_of(driver, tokens) for tokens in state.prompts] == answers
        scheduler = engine.scheduler
        assert (scheduler.running, scheduler.waiting, driver._channels) == ([], [], {})
        driver.close()
        while scheduler.holdings.prefixes.evict():
            pass
        assert scheduler.holdings.pool.n_free == scheduler.holdings.pool.n_pages
        if (snapshots := scheduler.holdings.snapshots) is not None:
            assert (snapshots.n_kept, snapshots.pool.n_free) == (0, snapshots.pool.n_pages)
    assert threading.active_count() == n_threads
    assert state.wrong == []
    return state, memory


def main() -> None:
    """Run a soak and print what it saw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--arch", default="llama", help="of tests/arch/tiny.py")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state, memory = soak(Path(folder), asked.seconds, asked.arch)
    for name, count in sorted(state.counts.items()):
        print(f"{count:8} {name}")
    print("MB of memory:", *(n_bytes >> 20 for n_bytes in memory))
    assert memory[-1] <= 1.05 * memory[1], "memory grew"


if __name__ == "__main__":
    main()
