"""Map a model file read-only, once it is known to be an ordinary file of the format wanted."""

import errno
import mmap
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import EdgeInferError, ModelFormatError, ModelNotFoundError, ResourceError
from edgeinfer.quant.tensor import map_of

# What people pass by mistake, by its first bytes, and the way out.
_LOOKALIKES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the model; run `git lfs pull`"),
    (b"<!doctype", "an HTML page, not the model; the download failed"),
    (b"<html", "an HTML page, not the model; the download failed"),
    (b"<?xml", "an XML page, not the model; the download failed"),
    (b"pk\x03\x04", "a ZIP archive (a PyTorch checkpoint or a wheel); a GGUF file is needed"),
    (b"\x80\x02", "a Python pickle; a GGUF file is needed"),
    (b"\x1f\x8b", "gzip-compressed; unpack it first"),
    (b"\xfd7zxz", "xz-compressed; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it first"),
    (b"ggml", "a GGML file, older than GGUF; get a current one"),
    (b"lmgg", "a GGML file, older than GGUF; get a current one"),
    (b"tjgg", "a GGML file, older than GGUF; get a current one"),
    (b"fmgg", "a GGML file, older than GGUF; get a current one"),
    (b"{", "JSON text; a GGUF file is needed"),
)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells a file from its changed or replaced self."""

    device: int
    inode: int
    n_bytes: int
    mtime_ns: int

    def is_same_file(self, other: "FileIdentity") -> bool:
        """Whether both are states of one file, not one and what replaced it."""
        return (self.device, self.inode) == (other.device, other.inode)


class MappedFile(mmap.mmap):
    """A file mapped read-only; `where` is its path for messages."""

    where = ""


def display(path: str | os.PathLike[str]) -> str:
    """Return a path for messages: printable whatever bytes and control characters it holds."""
    text = os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def identify(path: str | os.PathLike[str]) -> FileIdentity:
    """Return the identity of the file now at `path`. Raises OSError."""
    return identity_of(os.stat(path))


def check_gguf(where: str, head: bytes, n_bytes: int) -> None:
    """Raise ModelFormatError, saying what the file seems to be, if it does not begin like GGUF."""
    if head[:4] == b"GGUF":
        return
    if not head:
        raise ModelFormatError(f"{where}: the file is empty (need a GGUF file)")
    lowered = head.lstrip().lower()
    looks = next((what for start, what in _LOOKALIKES if lowered.startswith(start)), None)
    if looks is None and head[8:9] == b"{":
        looks = "a safetensors file; convert its folder first (edgeinfer convert FOLDER)"
    if looks is None and not any(head):
        looks = "zeros; the download or copy is unfinished"
    found = f"looks like {looks}" if looks else f"found {n_bytes} bytes that begin {head[:4]!r}"
    raise ModelFormatError(f"{where}: not a GGUF file: {found} (need the magic b'GGUF')")


def map_file(
    path: str | os.PathLike[str], check: Callable[[str, bytes, int], None] = check_gguf
) -> tuple[npt.NDArray[np.uint8], FileIdentity]:
    """Map a file read-only.

    The map lives as long as any view of the returned array. `check` gets the path for messages,
    the first 32 bytes and the length, and raises if the file is not what it should be.

    Returns:
        the bytes as a read-only uint8 array, and the identity of the file mapped.

    Raises:
        ModelNotFoundError: there is no such file, or no permission to read it.
        ModelFormatError: it is not an ordinary file, or `check` refuses it.
        ResourceError: reading or mapping failed.
    """
    where = display(path)
    descriptor, status = open_regular(path)
    try:
        with open(descriptor, "rb", buffering=0, closefd=False) as stream:
            check(where, stream.read(32), status.st_size)
        mapped = MappedFile(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ResourceError(f"{where}: cannot read or map the file: {error.strerror}") from None
    except ValueError:
        raise ResourceError(
            f"{where}: the file shrank while it was opened (from {status.st_size} bytes); "
            "load it again once it is written"
        ) from None
    finally:
        os.close(descriptor)
    mapped.where = where
    return np.frombuffer(mapped, np.uint8), identity_of(status)


def open_regular(path: str | os.PathLike[str]) -> tuple[int, os.stat_result]:
    """Open an ordinary file for reading; return its descriptor and status.

    Raises:
        ModelNotFoundError: there is no such file, or no permission to read it.
        ModelFormatError: it is not an ordinary file.
        ResourceError: the system fails.
    """
    where = display(path)
    # Without O_NONBLOCK the open of a FIFO waits for a writer that may never come.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise _open_error(where, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(f"{where}: found {_kind(status.st_mode)} (need a regular file)")
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise _open_error(where, error) from None
        raise
    return descriptor, status


def release(view: npt.NDArray[np.uint8]) -> None:
    """Let the system take back the pages of a mapped file's view; of other arrays, do nothing.

    They come back from the file when they are read again.
    """
    base = map_of(view)
    if base is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    whole = np.frombuffer(base, np.uint8)
    start = view.ctypes.data - whole.ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (start + view.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > first:
        base.madvise(mmap.MADV_DONTNEED, first, end - first)


def identity_of(status: os.stat_result) -> FileIdentity:
    """Return the identity a file status tells."""
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _open_error(where: str, error: OSError | ValueError) -> EdgeInferError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ModelNotFoundError(f"{where}: no such file")
    if isinstance(error, PermissionError):
        return ModelNotFoundError(f"{where}: permission denied (need read access)")
    if isinstance(error, ValueError):
        return ModelNotFoundError(f"{where}: not a path: {error}")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
        return ModelNotFoundError(f"{where}: not a path: {error.strerror}")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return ModelFormatError(f"{where}: found a socket or device (need a regular file)")
    return ResourceError(f"{where}: cannot open the file: {error.strerror}")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in kinds if test(mode)), "a device")
