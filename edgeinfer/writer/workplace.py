"""Write files in a folder of their own beside the target, then give them their names all at once.

The folder is `NAME.part-PID` in the target's folder, so that a rename suffices. It is locked while
its process lives: what a killed one left behind, the next writer of NAME removes.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import InvalidParameterError, ResourceError
from edgeinfer.loader.cache import is_running, publish, remove, try_lock
from edgeinfer.loader.mapped import display
from edgeinfer.writer.rereading import ChunkSums, Rereader, forget

BEGIN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Targets:
    """Where files are to appear: a folder that is there, and the names in it.

    `first` is the name that temporary files are called after.
    """

    folder: Path
    names: tuple[str, ...]

    @property
    def first(self) -> Path:
        """The path of the first file."""
        return self.folder / self.names[0]


def check_targets(targets: Targets, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse targets that are one of the sources, by whatever name, or that may not be written.

    Raises InvalidParameterError.
    """
    if not targets.folder.is_dir():
        raise InvalidParameterError(
            f"{display(targets.folder)}: no such folder; make it first or choose another"
        )
    inputs = {(status.st_dev, status.st_ino) for status in map(os.stat, sources)}
    for name in targets.names:
        path = targets.folder / name
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InvalidParameterError(f"{display(path)}: {error.strerror}") from None
        if (status.st_dev, status.st_ino) in inputs:
            raise InvalidParameterError(
                f"{display(path)}: the output is the input (the same file, perhaps through a "
                "link); choose another name"
            )
        if not path.is_file():
            raise InvalidParameterError(f"{display(path)}: is there and not a regular file")
        if not overwrite:
            raise InvalidParameterError(
                f"{display(path)}: exists; choose another name or allow overwriting (--force)"
            )
        if len(targets.names) > 1:
            raise InvalidParameterError(
                f"{display(path)}: exists, and the files of a set cannot all be replaced at once; "
                "remove the set first or choose another name"
            )


def check_room(targets: Targets, n_bytes: int) -> None:
    """Refuse at once what would fail after minutes. Raises ResourceError."""
    system = os.statvfs(targets.folder)
    free = system.f_bavail * system.f_frsize
    if free < n_bytes:
        raise ResourceError(
            f"{display(targets.folder)}: no space left: {n_bytes} bytes are needed, {free} are "
            "free; free some or choose another folder"
        )


class PartFile:
    """A file that is being written, front to back; what is to be verified is read meanwhile."""

    def __init__(self, path: Path, *, reread_every: int = 0) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._descriptor = os.open(path, flags, 0o666)
        self.path = path
        self._written = ChunkSums()
        self._n_begun = 0  # bytes that are on their way to the disk
        self._rereader = Rereader(path, reread_every or 1)
        self._meanwhile = reread_every > 0

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        self._written.update(data)
        while data:
            data = data[os.write(self._descriptor, data) :]
        n_bytes = self._written.n_bytes
        if n_bytes - self._n_begun >= BEGIN_BYTES:
            # The disk is busy from the first bytes on, not from when the system's memory is full.
            forget(self._descriptor, self._n_begun, n_bytes - self._n_begun)
            self._n_begun = n_bytes
            if self._meanwhile:
                self._rereader.grown(n_bytes)

    def sync(self) -> None:
        """Bring every byte to the disk, and let later reads come from there."""
        os.fsync(self._descriptor)
        forget(self._descriptor, 0, 0)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        """Read no more of the file; safe to call twice."""
        self._rereader.abandon()

    def verify(self) -> None:
        """Read what is left again. Raises ResourceError if it is not what was written."""
        self._rereader.check(self._written)


class Workplace:
    """The folder in which the files are written; nothing has its name until `publish`."""

    def __init__(self, targets: Targets, folder: Path) -> None:
        self.targets = targets
        self.folder = folder
        self._parts: list[PartFile] = []

    @contextmanager
    def file(self, name: str, *, reread_every: int = 0) -> Iterator[PartFile]:
        """Yield a file of the set to be written, in place of one of the name; it ends synced.

        Of what will be verified, one chunk in `reread_every` is read again, and meanwhile; with 0,
        all of it is, afterwards.
        """
        (self.folder / name).unlink(missing_ok=True)
        part = PartFile(self.folder / name, reread_every=reread_every)
        self._parts.append(part)
        try:
            yield part
            part.sync()
        finally:
            part.close()

    def abandon(self) -> None:
        """Read no more of what was written; safe to call twice."""
        for part in self._parts:
            part.abandon()

    def rewrite_head(self, name: str, head: bytes) -> None:
        """Replace a written file's first bytes, and read them again.

        Raises ResourceError if they are not what was written.
        """
        path = self.folder / name
        with open(path, "r+b", buffering=0) as file:
            left = memoryview(head)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
            file.seek(0)
            if file.read(len(head)) != head:
                raise ResourceError(
                    f"{display(path)}: its metadata reads back as other bytes; the disk or the "
                    "memory is faulty"
                )

    def publish(self, *, overwrite: bool = True) -> None:
        """Rename the files into place, the first last: without it a set is none.

        Without `overwrite`, and of a set, what appeared there meanwhile is left. Raises
        InvalidParameterError then.
        """
        names = self.targets.names
        claimed: list[Path] = []
        try:
            for name in reversed(names):
                whole, target = self.folder / name, self.targets.folder / name
                if not overwrite or len(names) > 1:
                    _claim(whole, target)
                    claimed.append(target)
                publish(whole, target)
        except InvalidParameterError:
            for target in claimed:
                target.unlink(missing_ok=True)
            raise


@contextmanager
def workplace(targets: Targets) -> Iterator[Workplace]:
    """Yield a new folder beside the targets; it is removed with all that is still in it.

    Raises ResourceError for every failure to write: a full disk, a folder without permission.
    """
    with disk_errors(targets.first):
        _remove_abandoned(targets.first)
        folder, descriptor = _new_folder(targets.first)
        place = Workplace(targets, folder)
        try:
            yield place
        finally:
            place.abandon()
            remove(folder)
            os.close(descriptor)


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn an OSError into a ResourceError that says what could not be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "no space left on the disk" if full else (error.strerror or str(error))
        raise ResourceError(
            f"{display(target)}: cannot be written: {what}; nothing was changed; "
            f"{'free some space' if full else 'make it writable'} or choose another folder"
        ) from error


def _new_folder(target: Path) -> tuple[Path, int]:
    """Make and lock a folder; return it and the descriptor that holds the lock."""
    for attempt in range(100):
        tail = f"-{attempt}" if attempt else ""
        folder = target.with_name(f"{target.name}.part-{os.getpid()}{tail}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        # Between the two calls another process may take it for abandoned.
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            if try_lock(descriptor) and _is_still(folder, descriptor):
                return folder, descriptor
            os.close(descriptor)
    raise ResourceError(f"{display(target)}: other processes take its temporary folders away")


def _claim(whole: Path, target: Path) -> None:
    """Give a file its name unless it is taken. Raises InvalidParameterError if it is."""
    try:
        os.link(whole, target)
    except OSError:  # taken, or a file system without links
        if os.path.lexists(target):
            raise InvalidParameterError(
                f"{display(target)}: appeared while it was being written, and is left as it is; "
                "choose another name or allow overwriting (--force)"
            ) from None


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_abandoned(target: Path) -> None:
    prefix = f"{target.name}.part-"
    for folder in target.parent.iterdir():
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if not folder.name.startswith(prefix) or not pid.isdecimal() or is_running(int(pid)):
            continue
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if try_lock(descriptor):
                    remove(folder)
            finally:
                os.close(descriptor)
