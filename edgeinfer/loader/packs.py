"""Keep pack files in the cache: find one, write one whole or not at all, bound what all take.

A pack's name is made of the model's fingerprint and the layout, so one of another model, of another
state of the file or of another version of edgeinfer is never opened.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from edgeinfer.errors import InvalidParameterError, ModelFormatError, ResourceError
from edgeinfer.loader.cache import cache_folder, is_being_written, only_writer, publish, remove
from edgeinfer.loader.mapped import display
from edgeinfer.loader.pack_file import Header, plan, read_header, write
from edgeinfer.quant.packed import MatrixToPack

ENVIRONMENT = "EDGEINFER_PACK_MAX_BYTES"
MAX_BYTES = 32 << 30  # what all packs together may take, unless told otherwise
SUFFIX = ".pack"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """A pack file of the cache. `header` is None if it is damaged."""

    path: Path
    n_bytes: int
    used_s: float  # when it was last loaded, or written
    header: Header | None


def packs_folder() -> Path:
    """Return the folder of the packs; it may not exist yet."""
    return cache_folder() / "packs"


def pack_path(fingerprint: bytes, layout: str) -> Path:
    """Return where the pack of a model in a layout is, or would be."""
    digest = blake2b(fingerprint + layout.encode(), digest_size=20).hexdigest()
    return packs_folder() / f"{digest}{SUFFIX}"


def max_bytes() -> int:
    """Return how many bytes all packs together may take. Raises InvalidParameterError."""
    text = os.environ.get(ENVIRONMENT, "")
    if not text:
        return MAX_BYTES
    if not (text.isascii() and text.isdecimal()):
        raise InvalidParameterError(f"{ENVIRONMENT}: found {text!r} (need a number of bytes)")
    return int(text)


def note_use(path: Path) -> None:
    """Remember that a pack was used now: those unused for longest go first.

    The time of change tells it; the system moves that of access at any look into the file.
    """
    with suppress(OSError):
        os.utime(path)


def kept() -> list[Kept]:
    """List the packs, the last used first."""
    found = []
    for path in _files():
        with suppress(OSError):
            status = path.stat()
            found.append(Kept(path, status.st_size, status.st_mtime, _header(path)))
    return sorted(found, key=lambda pack: -pack.used_s)


def write_pack(
    matrices: Sequence[MatrixToPack],
    *,
    fingerprint: bytes,
    layout: str,
    source: str,
    most_bytes: int,
    progress: Progress | None = None,
    on_wait: Callable[[], None] = lambda: None,
) -> Path:
    """Write the pack of a model unless it is there; make room for it first.

    Packs of the same source, of states the file had before, are removed. Raises ResourceError if
    it is larger than `most_bytes`, which holds for all packs together, or the disk is full.
    """
    header = plan(matrices, fingerprint=fingerprint, layout=layout, source=source)
    target = pack_path(fingerprint, layout)
    if header.n_bytes > most_bytes:
        raise ResourceError(
            f"{display(source)}: its pack would take {header.n_bytes} bytes (need at most "
            f"{most_bytes}); set {ENVIRONMENT} to more"
        )
    with only_writer(target, on_wait) as folder, _disk_errors(target, header):
        if _is_whole(target):
            return target
        for pack in kept():
            if pack.header is None or pack.header.source == source:
                remove_pack(pack.path)
        make_room(header.n_bytes, most_bytes)
        free = shutil.disk_usage(folder).free
        if free < header.n_bytes:
            raise ResourceError(
                f"{folder.parent}: no space left: the pack needs {header.n_bytes} bytes, {free} "
                "are free; set EDGEINFER_CACHE to another folder"
            )
        write(folder / target.name, header, matrices, progress)
        publish(folder / target.name, target)
    return target


def make_room(n_bytes: int, most_bytes: int) -> list[Path]:
    """Remove the packs unused for longest until `n_bytes` more fit; return what was removed."""
    packs = kept()
    total = sum(pack.n_bytes for pack in packs)
    gone = []
    while packs and total + n_bytes > most_bytes:
        pack = packs.pop()
        remove_pack(pack.path)
        gone.append(pack.path)
        total -= pack.n_bytes
    _remove_abandoned()
    return gone


def remove_pack(path: Path) -> None:
    """Remove a pack. Who has it mapped keeps it until the end."""
    remove(path)
    if not is_being_written(path):
        remove(path.with_name(f"{path.name}.lock"))


def _files() -> Iterator[Path]:
    with suppress(OSError):
        yield from (path for path in packs_folder().iterdir() if path.suffix == SUFFIX)


def _remove_abandoned() -> None:
    """Remove what killed writers left, of packs that nobody is writing."""
    with suppress(OSError):
        for part in packs_folder().glob(f"*{SUFFIX}.part-*"):
            target = part.with_name(part.name.rpartition(".part-")[0])
            if not is_being_written(target):
                remove(part)


def _header(path: Path) -> Header | None:
    try:
        return read_header(path)
    except (OSError, ModelFormatError):
        return None


def _is_whole(path: Path) -> bool:
    return _header(path) is not None


@contextmanager
def _disk_errors(target: Path, header: Header) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{target.parent}: the pack of {header.n_bytes} bytes cannot be written: "
            f"{error.strerror or error}; free space there or set EDGEINFER_CACHE to another folder"
        ) from error
