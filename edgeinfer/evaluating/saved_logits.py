"""Keep a reference's predictions in a file, for models that are to be compared with it later.

    magic "EI-LGTS\\n"   version u32   n_vocab u32   n_ctx u32   number of windows u32
    checksum of the header, 32 bytes (taken with zeros in its place)
    the ids of each window, n_ctx of them, i32
    for each window: for each row that counts a factor f32 and n_vocab codes u16; then a checksum
    of them, 32 bytes

Little-endian; checksums are BLAKE2b. A row's logits are factor * code, up to a constant that no
probability depends on. Its range is cut into 65,535 steps: where that is 40, a probability changes
by at most 0.03 % of itself.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgeinfer.errors import InvalidParameterError, ModelFormatError, ModelNotFoundError
from edgeinfer.evaluating.rows import Logits
from edgeinfer.evaluating.windows import LEAST_CTX, Windows
from edgeinfer.loader.fields import open_unfollowed
from edgeinfer.loader.mapped import display
from edgeinfer.writer.workplace import PartFile, Targets, check_room, workplace

MAGIC = b"EI-LGTS\n"
VERSION = 1
STEPS = 65535
CHECKSUM_BYTES = 32
MOST_CTX = 1 << 20
MOST_VOCAB = 1 << 24
_PREFIX = struct.Struct("<8sIIII32s")


class LogitsWriter:
    """A file that grows by a window at a time."""

    def __init__(self, file: PartFile, windows: Windows, n_vocab: int) -> None:
        self._file, self._left, self._n_vocab = file, len(windows.ids), n_vocab
        ids = np.array(windows.ids, "<i4").tobytes()
        fields = (MAGIC, VERSION, n_vocab, windows.n_ctx, len(windows.ids))
        checksum = _checksum(_PREFIX.pack(*fields, bytes(CHECKSUM_BYTES)), ids)
        file.write(memoryview(_PREFIX.pack(*fields, checksum) + ids))

    def add(self, rows: Logits) -> None:
        """Write the rows of the next window that count."""
        digest = blake2b(digest_size=CHECKSUM_BYTES)
        for row in rows:
            low = row.min()
            factor = np.float32((row.max() - low) / STEPS)
            codes = np.rint((row - low) / factor) if factor else np.zeros_like(row)
            data = factor.tobytes() + codes.astype("<u2").tobytes()
            digest.update(data)
            self._file.write(memoryview(data))
        self._file.write(memoryview(digest.digest()))
        self._left -= 1


@contextmanager
def saving(path: Path, windows: Windows, n_vocab: int) -> Iterator[LogitsWriter]:
    """Yield what writes a file; it appears at the end, whole.

    Raises InvalidParameterError if a file is there already, ResourceError if it cannot be written,
    at once if there is no room for it.
    """
    if path.exists():
        raise InvalidParameterError(f"{display(path)}: exists; remove it or choose another name")
    targets = Targets(path.absolute().parent, (path.name,))
    a_window = 4 * windows.n_ctx + _window_bytes(windows.n_ctx, n_vocab)
    check_room(targets, _PREFIX.size + len(windows.ids) * a_window)
    with workplace(targets) as place:
        with place.file(path.name) as file:
            writer = LogitsWriter(file, windows, n_vocab)
            yield writer
        place.publish(overwrite=False)


class SavedLogits:
    """A file of predictions, open; read window by window, each checked."""

    def __init__(self, path: Path) -> None:
        """Read and check the header.

        Raises ModelNotFoundError, or ModelFormatError if it is not a whole file of this version.
        """
        self.path = path
        try:
            self._file: BinaryIO = os.fdopen(open_unfollowed(path), "rb")
        except OSError as error:
            raise ModelNotFoundError(f"{display(path)}: {error.strerror}") from None
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> None:
        where = display(self.path)
        prefix = self._file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size or prefix[:8] != MAGIC:
            raise ModelFormatError(f"{where}: begins {prefix[:8]!r} (need {MAGIC!r}, saved logits)")
        _, version, n_vocab, n_ctx, n_windows, checksum = _PREFIX.unpack(prefix)
        if version != VERSION:
            raise ModelFormatError(f"{where}: found version {version} (need {VERSION})")
        if not (LEAST_CTX <= n_ctx <= MOST_CTX and 1 <= n_vocab <= MOST_VOCAB):
            raise ModelFormatError(f"{where}: found windows of {n_ctx}, {n_vocab} tokens")
        self.n_vocab, self.n_ctx = int(n_vocab), int(n_ctx)
        self._n_rows = _n_rows(self.n_ctx)
        self._window_bytes = _window_bytes(self.n_ctx, self.n_vocab)
        self._start = _PREFIX.size + 4 * n_ctx * n_windows
        needed = self._start + n_windows * self._window_bytes
        found = os.fstat(self._file.fileno()).st_size
        if found != needed:
            raise ModelFormatError(f"{where}: found {found} bytes (need {needed}); truncated?")
        ids = self._file.read(4 * n_ctx * n_windows)
        empty = prefix[:-CHECKSUM_BYTES] + bytes(CHECKSUM_BYTES)
        if _checksum(empty, ids) != checksum:
            raise ModelFormatError(f"{where}: the checksum of the header is wrong; it is damaged")
        rows = np.frombuffer(ids, "<i4").reshape(n_windows, n_ctx)
        self._windows = Windows(n_ctx, tuple(tuple(row.tolist()) for row in rows))

    def windows(self, *, n_ctx: int | None = None, most: int | None = None) -> Windows:
        """Return the windows that were read, at most `most` of them.

        Raises InvalidParameterError if they are of another length than `n_ctx`.
        """
        if n_ctx not in (None, self.n_ctx):
            raise InvalidParameterError(
                f"{display(self.path)}: found windows of {self.n_ctx} tokens (need {n_ctx}, "
                "as asked for)"
            )
        return Windows(self.n_ctx, self._windows.ids[:most])

    def rows(self, index: int) -> Logits:
        """Return the rows of a window that count. Raises ModelFormatError if they are damaged."""
        self._file.seek(self._start + index * self._window_bytes)
        data = self._file.read(self._window_bytes)
        if _checksum(data[:-CHECKSUM_BYTES]) != data[-CHECKSUM_BYTES:]:
            raise ModelFormatError(f"{display(self.path)}: window {index} is damaged")
        raw = np.frombuffer(data[:-CHECKSUM_BYTES], np.uint8).reshape(self._n_rows, -1)
        factors = raw[:, :4].copy().view("<f4")
        logits: Logits = raw[:, 4:].copy().view("<u2") * factors
        return logits

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "SavedLogits":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _n_rows(n_ctx: int) -> int:
    return n_ctx - 1 - n_ctx // 2


def _window_bytes(n_ctx: int, n_vocab: int) -> int:
    return _n_rows(n_ctx) * (4 + 2 * n_vocab) + CHECKSUM_BYTES


def _checksum(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=CHECKSUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
