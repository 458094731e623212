"""Run one engine on a thread of its own and let any thread submit sequences and read events.

The engine's state is touched by its thread alone. Callers and thread share two kinds of queue,
commands one way and events the other, so there is no lock to hold, and a KeyboardInterrupt that
lands in a caller finds the engine whole.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Event, Finished, Rows
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import BackendError, CancelledError, ModelClosedError

POLL_S: Final = 0.05  # a waiting caller looks up this often: Windows delivers Ctrl-C only then
MOST_UNREAD: Final = 16  # events a slow reader may leave before its sequence pauses

log = logging.getLogger(__name__)


class Handle:
    """A submitted sequence as its caller sees it: an iterator of events, and `cancel`.

    Reads belong to one thread; `cancel` may come from any.
    """

    def __init__(self, sequence: Sequence, driver: "Driver") -> None:
        self.sequence = sequence
        self._driver = driver
        self._channel = _Channel()
        self._done = False

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """Wait for the next event; the last one is `Finished`."""
        if self._done:
            raise StopIteration
        event = self._wait()
        self._channel.n_read += 1
        if self.sequence.paused:
            self._driver.resume(self.sequence)
        self._done = isinstance(event, Finished)
        return event

    def cancel(self) -> None:
        """End the sequence within one op of the step that is running; harmless when it is over."""
        if not self._done:
            self._driver.cancel(self.sequence)

    def __del__(self) -> None:
        self.cancel()

    def _wait(self) -> Event:
        while True:
            stopped = self._driver.is_stopped  # asked first: events may have come before it did
            try:
                return self._channel.events.get(timeout=POLL_S)
            except queue.Empty:
                self._driver.check_process()
                if stopped:
                    raise ModelClosedError("model was closed while it generated") from None
                if self.sequence.paused:
                    self._driver.resume(self.sequence)


class _Channel:
    """The engine thread posts, one caller reads; the difference of the counts is unread."""

    __slots__ = ("events", "n_posted", "n_read")

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.n_posted = 0
        self.n_read = 0


class Driver:
    """The thread that steps an engine for as long as there is anything to do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._channels: dict[Sequence, _Channel] = {}
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._main, name="edgeinfer-engine", daemon=True)
        self._thread.start()

    def submit(self, sequence: Sequence) -> Handle:
        """Start `sequence` and return its handle; sequences of several callers run together.

        Raises what `Engine.check` raises, ModelClosedError after `close`, BackendError in a
        forked child, where the thread does not exist.
        """
        self.check_process()
        if self._closed:
            raise ModelClosedError("model is closed; load it again")
        self._engine.check(sequence.tokens, max_tokens=sequence.max_tokens)
        handle = Handle(sequence, self)
        self._commands.put(partial(self._start, sequence, handle._channel))
        return handle

    @property
    def is_stopped(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def cancel(self, sequence: Sequence) -> None:
        """Ask for the end of `sequence`; others in the same step repeat it and lose nothing."""
        self._commands.put(partial(self._finish_cancelled, sequence))
        self._engine.cancel.set()

    def resume(self, sequence: Sequence) -> None:
        """Let a sequence that paused for its reader go on."""
        self._commands.put(partial(setattr, sequence, "paused", False))

    def close(self) -> None:
        """End all sequences, free the executable, wait for the thread; idempotent."""
        if os.getpid() != self._process:
            return
        self._closed = True
        self._commands.put(lambda: None)
        self._engine.cancel.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def check_process(self) -> None:
        """Raise BackendError in a forked child."""
        if os.getpid() != self._process:
            raise BackendError(
                "model: loaded by another process: threads do not survive fork; load the model "
                "in this process, or start it with the 'spawn' method"
            )

    def _main(self) -> None:
        why: BaseException = ModelClosedError("model was closed while it generated")
        try:
            self._loop()
        except BaseException as bug:
            log.exception("the engine's thread failed")
            why = bug
        self._closed = True
        try:
            self._obey(wait=False)
            self._fail_all(why)
        finally:
            self._engine.executable.close()

    def _loop(self) -> None:
        while not self._closed:
            self._obey(wait=not self._engine.scheduler.has_work)
            if self._closed:
                return
            try:
                self._post(self._engine.step())
            except CancelledError:
                pass  # the command that says which sequence is obeyed before the next step
            except Exception as error:
                self._fail_all(error)

    def _obey(self, *, wait: bool) -> None:
        """Carry out the commands that have come; `wait` for the first one when idle."""
        if wait:
            self._commands.get()()
        self._engine.cancel.clear()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _start(self, sequence: Sequence, channel: _Channel) -> None:
        self._channels[sequence] = channel
        self._engine.add(sequence)

    def _finish_cancelled(self, sequence: Sequence) -> None:
        if sequence in self._channels:
            self._post(self._engine.finish(sequence, "cancelled"))

    def _fail_all(self, error: BaseException) -> None:
        for sequence in list(self._channels):
            self._post(self._engine.finish(sequence, "error", error))

    def _post(self, events: list[Event]) -> None:
        for event in events:
            channel = self._channels[event.sequence]
            channel.n_posted += 1
            channel.events.put(event)
            if isinstance(event, Finished):
                del self._channels[event.sequence]
            elif channel.n_posted - channel.n_read >= _most_unread(event):
                event.sequence.paused = True


def _most_unread(event: Event) -> int:
    return 2 if isinstance(event, Rows) else MOST_UNREAD  # rows may be 64 MiB
