"""Compile on a thread of its own, so that Ctrl-C is heard, and pass the progress on."""

import threading
from collections.abc import Callable
from typing import TypeVar

from edgeinfer.errors import CancelledError
from edgeinfer.kernels.backend import Cancel, Executable

T = TypeVar("T")
LoadProgress = Callable[[str, int, int], None]  # the stage, bytes, of bytes
POLL_S = 0.05  # how often a waiting load looks up for Ctrl-C


def side_by_side(
    compile_program: Callable[[], Executable],
    build: Callable[[], T],
    cancel: Cancel,
) -> tuple[Executable, T]:
    """Compile on another thread while this one builds what else there is; fail together.

    This thread waits in short naps, so that Ctrl-C is heard at once; the compiling thread then
    stops within milliseconds, and frees what it has made.
    """
    compiled: list[Executable] = []
    failed: list[BaseException] = []
    abandoned = threading.Event()

    def work() -> None:
        try:
            compiled.append(compile_program())
        except BaseException as error:
            failed.append(error)
        if abandoned.is_set():
            _close_all(compiled)

    thread = threading.Thread(target=work, name="edgeinfer-compile", daemon=True)
    thread.start()
    try:
        built = build()
        while thread.is_alive():
            thread.join(POLL_S)
    except BaseException:
        abandoned.set()
        cancel.set()
        _close_all(compiled)
        raise
    if failed:
        raise failed[0]
    return compiled[0], built


def _close_all(executables: list[Executable]) -> None:
    """Close each once, whichever thread comes first."""
    while executables:
        try:
            executables.pop().close()
        except IndexError:
            return


class Report:
    """Pass a backend's progress on; what the caller's function raises ends the work.

    A backend may report from a thread of its own, where an exception would be lost.
    """

    def __init__(
        self, progress: LoadProgress | None, cancel: Cancel, *, stage: str = "weights"
    ) -> None:
        self._progress = progress
        self._stage = stage
        self._cancel = cancel
        self._raised: BaseException | None = None

    def __call__(self, n_done: int, n_total: int) -> None:
        if self._progress is not None and self._raised is None:
            try:
                self._progress(self._stage, n_done, n_total)
            except BaseException as error:
                self._raised = error
                self._cancel.set()

    def run(self, compile_program: Callable[[], Executable]) -> Executable:
        """Return what was compiled, or raise what the caller's function raised meanwhile."""
        try:
            executable = compile_program()
        except CancelledError:
            if self._raised is not None:
                raise self._raised from None
            raise
        if self._raised is not None:
            executable.close()
            raise self._raised
        return executable
