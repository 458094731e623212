"""Define Handle: a submitted sequence as its caller sees it, in a thread or in an event loop.

The engine's thread posts events and one caller reads them; nothing here waits for a lock.
"""

import queue
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from edgeinfer.engine.events import Event, Finished, Progress
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import ModelClosedError

if TYPE_CHECKING:
    import asyncio

POLL_S: Final = 0.05  # a waiting caller looks up this often: Windows delivers Ctrl-C only then
PromptProgress = Callable[[int, int, int], None]  # tokens done, tokens in all, of them cached


class Runner(Protocol):
    """What a handle needs of `driver.Driver`."""

    @property
    def is_stopped(self) -> bool:
        """Whether no event will come any more."""

    def cancel(self, sequence: Sequence) -> None:
        """End `sequence` soon."""

    def expire(self, sequence: Sequence) -> None:
        """End `sequence` soon, because its deadline has passed."""

    def resume(self, sequence: Sequence) -> None:
        """Let `sequence` go on, whose events are read again."""

    def check_process(self) -> None:
        """Raise BackendError in a forked child."""


class Channel:
    """Events on their way; the difference of the counts is unread."""

    __slots__ = ("_events", "_wake", "n_posted", "n_read")

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._wake: Callable[[], object] | None = None
        self.n_posted = 0
        self.n_read = 0

    @property
    def n_unread(self) -> int:
        """Events that were posted and not read."""
        return self.n_posted - self.n_read

    def post(self, event: Event) -> bool:
        """Hand over an event; False if its reader's event loop is closed."""
        self.n_posted += 1
        self._events.put(event)
        wake, self._wake = self._wake, None
        try:
            if wake is not None:
                wake()
        except RuntimeError:
            return False
        return True

    def read(self, timeout_s: float = 0.0) -> Event | None:
        """Return the next event; None if none comes within the time."""
        try:
            event = self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait()
        except queue.Empty:
            return None
        self.n_read += 1
        return event

    async def posted(self, timeout_s: float) -> None:
        """Wait until an event is there, or for the time given."""
        import asyncio  # late: whoever awaits has it, and it takes its time

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._wake = lambda: loop.call_soon_threadsafe(_wake, waiter)
        try:
            if self._events.empty():  # else it may have come before there was anybody to wake
                await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self._wake = None


class Handle:
    """An iterator of events, in a `for` or an `async for`; the last one is `Finished`.

    `result()`, or `await handle`, reads them all. Reads belong to one thread or task at a time;
    `cancel` may come from anywhere. A handle that is forgotten cancels its sequence.
    """

    def __init__(
        self,
        sequence: Sequence,
        runner: Runner,
        *,
        progress: PromptProgress | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        """Call `progress` from whoever reads, as the prompt's tokens become ready, and `at_end`
        when a sequence ended well; what it raises, the last read raises.
        """
        self.sequence = sequence
        self.channel = Channel()
        self._runner = runner
        self._progress, self._at_end = progress, at_end
        self._expired = False
        self._done = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """Wait for the next event.

        Raises ModelClosedError if the engine ended without one, BackendError in a forked child,
        and what the progress function raises, which also cancels the sequence.
        """
        if self._done:
            raise StopIteration
        while True:
            stopped = self._runner.is_stopped  # asked first: events may have come before it did
            event = self.channel.read(self._wait_s())
            if event is not None:
                return self._take(event)
            self._look_up(stopped)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event without blocking the event loop; raises what a read raises."""
        if self._done:
            raise StopAsyncIteration
        while True:
            stopped = self._runner.is_stopped
            event = self.channel.read()
            if event is not None:
                return self._take(event)
            self._look_up(stopped)
            await self.channel.posted(self._wait_s())

    def __await__(self) -> Generator[Any, None, Sequence]:
        return self._result().__await__()

    def result(self) -> Sequence:
        """Read to the end and return the sequence; raises what made it fail."""
        try:
            for _ in self:
                pass
        except BaseException:
            self.cancel()
            raise
        return self._ended()

    def cancel(self) -> None:
        """End the sequence within one op of the step that is running; harmless when it is over."""
        if not self._done:
            self._runner.cancel(self.sequence)

    def __del__(self) -> None:
        if hasattr(self, "_done"):
            self.cancel()

    async def _result(self) -> Sequence:
        try:
            async for _ in self:
                pass
        except BaseException:
            self.cancel()
            raise
        return self._ended()

    def _ended(self) -> Sequence:
        if self.sequence.error is not None:
            raise self.sequence.error
        return self.sequence

    def _take(self, event: Event) -> Event:
        if self.sequence.paused:
            self._runner.resume(self.sequence)
        self._done = isinstance(event, Finished)
        if isinstance(event, Progress) and self._progress is not None:
            try:
                self._progress(event.n_done, event.n_total, event.n_cached)
            except BaseException:
                self.cancel()
                raise
        if self._done and self._at_end is not None and self.sequence.error is None:
            self._at_end()
        return event

    def _wait_s(self) -> float:
        if self.sequence.deadline_s is None or self._expired:
            return POLL_S
        return max(0.001, min(POLL_S, self.sequence.deadline_s - time.monotonic()))

    def _look_up(self, stopped: bool) -> None:
        self._runner.check_process()
        if stopped:
            raise ModelClosedError("model was closed while it generated")
        deadline_s = self.sequence.deadline_s
        if deadline_s is not None and not self._expired and time.monotonic() >= deadline_s:
            self._runner.expire(self.sequence)
            self._expired = True


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
