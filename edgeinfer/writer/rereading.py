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


class ChunkSums:
    """The checksums of a file's chunks, taken of bytes that come one after another."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.chunks: list[Checksum] = []

    def update(self, data: memoryview) -> None:
        """Take the next bytes in."""
        self.n_bytes += len(data)
        while data:
            if not self.chunks or self.chunks[-1].n_bytes == CHUNK_BYTES:
                self.chunks.append(Checksum())
            taken = data[: CHUNK_BYTES - self.chunks[-1].n_bytes]
            self.chunks[-1].update(taken)
            data = data[len(taken) :]


class Rereader:
    """A thread that reads a growing file; of a short one, the call that waits for it reads it.

    It reads one chunk in `every`, the first among them, and the last besides. Its errors come out
    of `grown` and `check`, as OSError.
    """

    def __init__(self, path: Path, every: int) -> None:
        self.path = path
        self._every = every
        self._found: dict[int, Checksum] = {}
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

    def check(self, written: ChunkSums) -> None:
        """Read the rest. Raises ResourceError unless the file reads back as it was written."""
        self.grown(written.n_bytes)
        self._end()
        if self._thread is None:
            self._run()
        if self._error is not None:
            raise self._error
        for index, found in self._found.items():
            need = written.chunks[index]
            if (found.n_bytes, found.value) != (need.n_bytes, need.value):
                raise ResourceError(
                    f"{display(self.path)}: from byte {index * CHUNK_BYTES} on, reads back as "
                    f"{found.n_bytes} bytes with checksum {found.value:08x} (written: "
                    f"{need.n_bytes}, {need.value:08x}); the disk or the memory is faulty"
                )

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
                    index = 0
                    while n_bytes := self._wait(index):
                        is_last = (index + 1) * CHUNK_BYTES >= n_bytes
                        if index % self._every == 0 or is_last:
                            self._found[index] = _read(descriptor, is_direct, view, index)
                        index += 1
            finally:
                os.close(descriptor)
        except OSError as error:
            self._error = error

    def _wait(self, index: int) -> int:
        """Wait until a chunk was written a while ago; return the file's length, 0 at its end."""
        with self._changed:
            while not self._ended and self._n_bytes < (index + 2) * CHUNK_BYTES:
                self._changed.wait()
            return self._n_bytes if index * CHUNK_BYTES < self._n_bytes else 0


def _read(descriptor: int, is_direct: bool, view: memoryview, index: int) -> Checksum:
    """Return the checksum of what the disk has of a chunk."""
    begin, found = index * CHUNK_BYTES, Checksum()
    if not is_direct:
        os.fsync(descriptor)
        forget(descriptor, begin, CHUNK_BYTES)
    while found.n_bytes < CHUNK_BYTES:
        n = os.preadv(descriptor, [view], begin + found.n_bytes)
        found.update(view[:n])
        if n == 0 or n % mmap.PAGESIZE:  # the file's end; a direct read may not begin inside a page
            break
    forget(descriptor, begin, CHUNK_BYTES)
    return found


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
