"""Run one engine on a thread of its own and let any thread or event loop submit sequences.

The engine's state is touched by its thread alone. Callers and thread share two kinds of queue,
commands one way and events the other, so there is no lock to hold, and a KeyboardInterrupt that
lands in a caller finds the engine whole.
"""

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NoReturn, TypeVar

from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Event, Finished, Rows
from edgeinfer.engine.handle import POLL_S, Channel, Handle, PromptProgress
from edgeinfer.engine.sequence import FinishReason, Sequence
from edgeinfer.errors import BackendError, CancelledError, InvalidParameterError, ModelClosedError

MOST_UNREAD: Final = 48  # events a slow reader may leave before its sequence pauses
LARGE_BYTES: Final = 1 << 20  # of rows of which fewer wait

T = TypeVar("T")

log = logging.getLogger(__name__)


class Driver:
    """The thread that steps an engine for as long as there is anything to do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._channels: dict[Sequence, Channel] = {}
        self._closed = False
        self._was_aborted = False  # the step before
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._main, name="edgeinfer-engine", daemon=True)
        self._thread.start()

    def submit(
        self,
        sequence: Sequence,
        *,
        timeout_s: float | None = None,
        progress: PromptProgress | None = None,
        at_end: Callable[[], None] | None = None,
    ) -> Handle:
        """Start `sequence` and return its handle; sequences of several callers run together.

        After `timeout_s` it ends with the reason "deadline", and with the answer it has by then.
        `progress` and `at_end` are called by whoever reads the handle.

        Raises what `Engine.check` raises, InvalidParameterError for a timeout that is not above 0,
        ModelClosedError after `close`, BackendError in a forked child, where there is no thread.
        """
        self._check_may_wait()
        self._engine.check(sequence.tokens, max_tokens=sequence.max_tokens)
        if timeout_s is not None:
            if not (timeout_s > 0 and math.isfinite(timeout_s)):
                raise InvalidParameterError(f"timeout_s: found {timeout_s} (need more than 0)")
            sequence.deadline_s = time.monotonic() + timeout_s
        handle = Handle(sequence, self, progress=progress, at_end=at_end)
        self._commands.put(partial(self._start, sequence, handle.channel))
        return handle

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine's thread, between two steps, and return what it returns.

        Raises what it raises, and what `submit` raises for a driver that is not there.
        """
        self._check_may_wait()
        answers: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
        self._commands.put(partial(_answer, function, answers))
        while True:
            stopped = self.is_stopped  # asked first: the answer may have come before it did
            try:
                return answers.get(timeout=POLL_S)()
            except queue.Empty:
                if stopped:
                    raise ModelClosedError("model was closed meanwhile") from None

    @property
    def is_stopped(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def cancel(self, sequence: Sequence) -> None:
        """Ask for the end of `sequence`; others in the same step repeat it and lose nothing."""
        self._end(sequence, "cancelled")

    def expire(self, sequence: Sequence) -> None:
        """Ask for the end of `sequence`, whose deadline has passed."""
        self._end(sequence, "deadline")

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

    def _check_may_wait(self) -> None:
        """Raise unless the caller may wait for the thread."""
        self.check_process()
        if self._closed:
            raise ModelClosedError("model is closed; load it again")
        if threading.current_thread() is self._thread:
            raise InvalidParameterError(
                "model: found a request from within another one's logits processor, which would "
                "wait for itself (need another thread, or another model)"
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
            self._engine.close()

    def _loop(self) -> None:
        while not self._closed:
            self._obey(wait=not self._engine.scheduler.has_work)
            if self._closed:
                return
            self._expire_all()
            try:
                self._post(self._engine.step())
                self._was_aborted = False
            except CancelledError:
                # the command that says which sequence is obeyed before the step is repeated
                self._was_aborted = True
            except Exception as error:
                log.exception("a step failed in a way that no sequence explains")
                self._fail_all(error)

    def _obey(self, *, wait: bool) -> None:
        """Carry out the commands that have come; `wait` for the first one when idle."""
        if wait:
            try:
                self._commands.get(timeout=self._idle_s())()
            except queue.Empty:
                return
        self._engine.cancel.clear()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _idle_s(self) -> float | None:
        """Return the seconds to the next deadline; paused sequences have one, too."""
        deadlines = [s.deadline_s for s in self._channels if s.deadline_s is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _expire_all(self) -> None:
        now_s = time.monotonic()
        late = [s for s in self._channels if s.deadline_s is not None and s.deadline_s <= now_s]
        for sequence in late:
            self._finish(sequence, "deadline")

    def _start(self, sequence: Sequence, channel: Channel) -> None:
        self._channels[sequence] = channel
        self._engine.add(sequence)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.finish_reason is not None:
            return
        self._commands.put(partial(self._finish, sequence, reason))
        if not self._was_aborted:  # or a step might never come to its end
            self._engine.cancel.set()

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence in self._channels:
            self._post(self._engine.finish(sequence, reason))

    def _fail_all(self, error: BaseException) -> None:
        for sequence in list(self._channels):
            self._post(self._engine.finish(sequence, "error", error))

    def _post(self, events: Iterable[Event]) -> None:
        unreachable = []
        for event in events:
            sequence = event.sequence
            channel = self._channels[sequence]
            if not channel.post(event):
                unreachable.append(sequence)
            if isinstance(event, Finished):
                del self._channels[sequence]
            elif channel.n_unread >= (most := _most_unread(event)):
                sequence.paused = True
                if channel.n_unread < most:  # its reader may not have seen that it is paused
                    sequence.paused = False
        for sequence in unreachable:
            self._finish(sequence, "cancelled")


def _answer(function: Callable[[], T], answers: "queue.SimpleQueue[Callable[[], T]]") -> None:
    try:
        result = function()
    except BaseException as error:
        answers.put(partial(_raise, error))
    else:
        answers.put(lambda: result)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _most_unread(event: Event) -> int:
    """Return how many events may wait with this one; rows may be 64 MiB."""
    is_large = isinstance(event, Rows) and event.rows.nbytes > LARGE_BYTES
    return 2 if is_large else MOST_UNREAD
