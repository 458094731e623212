"""A checksum of what was written, fast enough to be taken twice of every byte: 11 GB/s, CRC-32 2.

The CRC-32 of the sums of 64-bit words of each 4 KB: a page that is wrong, missing or in another's
place shows. Against accidents of memory and disk, not against people.
"""

import zlib

import numpy as np

PAGE_BYTES = 4096


class Checksum:
    """The checksum of bytes that come one after another, cut anywhere."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._of_pages = 0
        self._begun = b""

    def update(self, data: memoryview) -> None:
        """Take the next bytes in."""
        self.n_bytes += len(data)
        if self._begun:
            missing = PAGE_BYTES - len(self._begun)
            self._begun += bytes(data[:missing])
            data = data[missing:]
            if len(self._begun) < PAGE_BYTES:
                return
            self._of_pages = _with_pages(self._begun, self._of_pages)
        whole = len(data) - len(data) % PAGE_BYTES
        if whole:
            self._of_pages = _with_pages(data[:whole], self._of_pages)
        self._begun = bytes(data[whole:])

    @property
    def value(self) -> int:
        """The checksum of all bytes so far, 32 bits."""
        return _with_pages(self._begun.ljust(PAGE_BYTES, b"\0"), self._of_pages)


def _with_pages(pages: bytes | memoryview, before: int) -> int:
    words = np.frombuffer(pages, "<u8").reshape(-1, PAGE_BYTES // 8)
    sums: np.ndarray = np.add.reduce(words, axis=1)
    return zlib.crc32(sums.astype("<u8", copy=False).data, before)
