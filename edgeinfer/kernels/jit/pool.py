"""Run one kernel on several threads at once: a handful of Python threads that hold no GIL in it.

The caller is a member like any other and finishes everything alone where no peer shows up: a peer
that has not begun by then is not waited for. One caller at a time.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from edgeinfer.errors import BackendError
from edgeinfer.kernels.jit.jobs import FLAG, NEXT, new_job

Compiled = Callable[..., None]


class Pool:
    """`n_threads` members, the caller among them; close() ends the others."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._job = new_job()
        self._address = self._job.ctypes.data
        self._pid = os.getpid()
        self._peers = [_Peer(thread) for thread in range(1, n_threads)]
        self._active = self._peers

    def begin(self, n_members: int, flag: int) -> None:
        """Start a step of some members, which the int32 at `flag` cancels once it is not 0."""
        if os.getpid() != self._pid:
            raise BackendError(
                "the process was forked after the model was loaded: its threads are gone; "
                "load the model again in the child"
            )
        self._active = self._peers[: n_members - 1]
        self._job[FLAG] = flag

    def run(self, kernel: Compiled, n_pieces: int, *args: Any) -> None:
        """Run the pieces 0 .. n_pieces-1 of a kernel; return when all are done."""
        self._job[NEXT] = 0
        called = self._active[: n_pieces - 1]
        for peer in called:
            peer.call(kernel, (self._address, peer.thread, n_pieces, *args))
        try:
            kernel(self._address, 0, n_pieces, *args)
        finally:  # an interrupt may come between two lines; nobody may go on writing then
            for peer in called:
                peer.join()

    def run_alone(self, kernel: Compiled, n_pieces: int, *args: Any) -> None:
        """Do the same without the peers, for what is done before they would be awake."""
        self._job[NEXT] = 0
        kernel(self._address, 0, n_pieces, *args)

    def close(self) -> None:
        """End the peers; calling it again does nothing."""
        if os.getpid() == self._pid:
            for peer in self._peers:
                peer.end()
        self._peers = self._active = []


class _Peer:
    """One thread that sleeps until it is called."""

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self._kernel: Compiled | None = None
        self._args: tuple[Any, ...] = ()
        self._called, self._done = threading.Lock(), threading.Lock()
        self._called.acquire()
        self._done.acquire()
        name = f"edgeinfer-jit-{thread}"
        self._worker = threading.Thread(target=self._work, name=name, daemon=True)
        self._worker.start()

    def call(self, kernel: Compiled, args: tuple[Any, ...]) -> None:
        self._kernel, self._args = kernel, args
        self._called.release()

    def join(self) -> None:
        """Wait for what was called, or take the call back if it was not heard yet."""
        if not self._called.acquire(blocking=False):
            self._done.acquire()

    def end(self) -> None:
        self._kernel = None
        self._called.release()
        self._worker.join()

    def _work(self) -> None:
        while True:
            self._called.acquire()
            if self._kernel is None:
                return
            self._kernel(*self._args)
            self._done.release()
