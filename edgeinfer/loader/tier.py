"""Bound what a folder of the cache takes: list its files, make room, write one whole or not at all.

Knows no format: whoever writes says how many bytes there will be, and how to tell a whole file.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import InvalidParameterError, ResourceError
from edgeinfer.loader.cache import cache_folder, is_being_written, only_writer, publish, remove


@dataclass(frozen=True, slots=True)
class Tier:
    """A folder of the cache, the suffix of its files, and the cap on all of them together.

    `what` names a file in messages; `environment` is the variable that sets another cap.
    """

    name: str
    suffix: str
    what: str
    environment: str
    default_bytes: int

    @property
    def folder(self) -> Path:
        """Where the files are; it may not exist yet."""
        return cache_folder() / self.name

    def max_bytes(self) -> int:
        """Return how many bytes all files together may take. Raises InvalidParameterError."""
        text = os.environ.get(self.environment, "")
        if not text:
            return self.default_bytes
        if not (text.isascii() and text.isdecimal()):
            raise InvalidParameterError(f"{self.environment}: found {text!r} (need a whole number)")
        return int(text)

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """List the files, the last used first."""
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.suffix == self.suffix:
                    with suppress(OSError):
                        found.append((path, path.stat()))
        return sorted(found, key=lambda item: -item[1].st_mtime)

    def make_room(self, n_bytes: int, most_bytes: int) -> list[Path]:
        """Remove the files unused for longest until `n_bytes` more fit; return what is gone."""
        files = self.files()
        total = sum(status.st_size for _, status in files)
        gone = []
        while files and total + n_bytes > most_bytes:
            path, status = files.pop()
            remove_file(path)
            gone.append(path)
            total -= status.st_size
        self._remove_abandoned()
        return gone

    def write(
        self,
        target: Path,
        n_bytes: int,
        write: Callable[[Path], None],
        *,
        most_bytes: int,
        source: str,
        is_whole: Callable[[Path], bool],
        before: Callable[[], None] = lambda: None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Write `target` by `write(path)` unless it is there whole; make room for it first.

        `before` is called once it is sure that nobody else writes it. Raises ResourceError if it
        is larger than `most_bytes`, which holds for all files together, or the disk is full.
        """
        if n_bytes > most_bytes:
            raise ResourceError(
                f"{source}: its {self.what} would take {n_bytes} bytes (need at most "
                f"{most_bytes}); set {self.environment} to more"
            )
        with only_writer(target, on_wait) as folder, self._disk_errors(target, n_bytes):
            if is_whole(target):
                return
            before()
            self.make_room(n_bytes, most_bytes)
            free = shutil.disk_usage(folder).free
            if free < n_bytes:
                raise ResourceError(
                    f"{folder.parent}: no space left: the {self.what} needs {n_bytes} bytes, "
                    f"{free} are free; set EDGEINFER_CACHE to another folder"
                )
            write(folder / target.name)
            publish(folder / target.name, target)

    def _remove_abandoned(self) -> None:
        """Remove what killed writers left, of files that nobody is writing."""
        with suppress(OSError):
            for part in self.folder.glob(f"*{self.suffix}.part-*"):
                target = part.with_name(part.name.rpartition(".part-")[0])
                if not is_being_written(target):
                    remove(part)

    @contextmanager
    def _disk_errors(self, target: Path, n_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                f"{target.parent}: the {self.what} of {n_bytes} bytes cannot be written: "
                f"{error.strerror or error}; free space there or set EDGEINFER_CACHE to another "
                "folder"
            ) from error


def note_use(path: Path) -> None:
    """Remember that a file was used now: those unused for longest go first.

    The time of change tells it; the system moves that of access at any look into the file.
    """
    with suppress(OSError):
        os.utime(path)


def remove_file(path: Path) -> None:
    """Remove a file. Who has it open keeps it until the end."""
    remove(path)
    if not is_being_written(path):
        remove(path.with_name(f"{path.name}.lock"))
