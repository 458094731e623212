"""Read a file again while it is being written, what was written a while ago beside what is new.

The reads go past the system's memory where it allows that, so they show what the disk has. Knows
the file's length so far and nothing of what is in it.
"""

import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path

from edgeinfer.errors import ResourceError
from edgeinfer.loader.mapped import display
from edgeinfer.writer.checksum import Checksum

CHUNK_BYTES = 32 << 20  # read at a time, and how far behind the writer at least
READ_BYTES = 4 << 20
DIRECT = getattr(os, "O_DIRECT", 0)


class Rereader:
    """A thread that reads a growing file; of a short one, the call that waits for it reads it.

    Its errors come out of `grown` and `finish`, as OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found = Checksum()
        self._n_bytes = 0
        self._ended = False
        self._error: OSError | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def grown(self, n_bytes: int) -> None:
        """Tell that the file has so many bytes by now."""
        with self._changed:
            if self._error is not None:
                raise self._error
            self._n_bytes = n_bytes
            self._changed.notify()
        if self._thread is None and n_bytes >= 2 * CHUNK_BYTES:
            self._thread = threading.Thread(target=self._run, name="edgeinfer-reread", daemon=True)
            self._thread.start()

    def finish(self) -> Checksum:
        """Return the checksum of the whole file once all of it is read."""
        self._end()
        if self._thread is None:
            self._run()
        if self._error is not None:
            raise self._error
        return self._found

    def abandon(self) -> None:
        """End the thread, whatever is left; safe to call twice."""
        with self._changed:
            self._n_bytes = 0
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            descriptor, is_direct = _opened(self.path)
            try:
                with mmap.mmap(-1, READ_BYTES) as buffer, memoryview(buffer) as view:
                    while (end := self._next()) > self._found.n_bytes:
                        self._read(descriptor, is_direct, view, end)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._error = error

    def _next(self) -> int:
        """Wait for the next chunk; return where it ends."""
        done = self._found.n_bytes
        with self._changed:
            while not self._ended and self._n_bytes < done + 2 * CHUNK_BYTES:
                self._changed.wait()
            return self._n_bytes if self._ended else done + CHUNK_BYTES

    def _read(self, descriptor: int, is_direct: bool, view: memoryview, end: int) -> None:
        begin = self._found.n_bytes
        if not is_direct:
            os.fsync(descriptor)
            forget(descriptor, begin, end - begin)
        while (at := self._found.n_bytes) < end:
            n = min(os.preadv(descriptor, [view], at), end - at)
            if n == 0:
                return  # the checksum tells
            self._found.update(view[:n])
        forget(descriptor, begin, end - begin)


def forget(descriptor: int, at: int, n_bytes: int) -> None:
    """Let the system write a stretch of a file to the disk, and free memory of what is there."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(descriptor, at, n_bytes, os.POSIX_FADV_DONTNEED)


def _opened(path: Path) -> tuple[int, bool]:
    """Open a file for reads past the system's memory, or else for plain ones."""
    if DIRECT:
        with suppress(OSError):  # the file system has no such reads
            return os.open(path, os.O_RDONLY | DIRECT), True
    return os.open(path, os.O_RDONLY), False


def check_same(written: Checksum, found: Checksum, path: Path) -> None:
    """Raise ResourceError unless a file reads back as it was written."""
    if (found.n_bytes, found.value) != (written.n_bytes, written.value):
        raise ResourceError(
            f"{display(path)}: reads back as {found.n_bytes} bytes with checksum "
            f"{found.value:08x} (written: {written.n_bytes}, {written.value:08x}); the disk or "
            "the memory is faulty"
        )
