"""Keep pack files in the cache: find one, write one whole or not at all, bound what all take.

A pack's name is made of the model's fingerprint and the layout, so one of another model, of another
state of the file or of another version of edgeinfer is never opened.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader import tier
from edgeinfer.loader.mapped import display
from edgeinfer.loader.pack_file import Header, plan, read_header, write
from edgeinfer.quant.packed import MatrixToPack

ENVIRONMENT = "EDGEINFER_PACK_MAX_BYTES"
TIER = tier.Tier("packs", ".pack", "pack", ENVIRONMENT, 32 << 30)

Progress = Callable[[int, int], None]

max_bytes = TIER.max_bytes
make_room = TIER.make_room
note_use = tier.note_use
remove_pack = tier.remove_file


@dataclass(frozen=True, slots=True)
class Kept:
    """A pack file of the cache. `header` is None if it is damaged."""

    path: Path
    n_bytes: int
    used_s: float  # when it was last loaded, or written
    header: Header | None


def packs_folder() -> Path:
    """Return the folder of the packs; it may not exist yet."""
    return TIER.folder


def pack_path(fingerprint: bytes, layout: str) -> Path:
    """Return where the pack of a model in a layout is, or would be."""
    digest = blake2b(fingerprint + layout.encode(), digest_size=20).hexdigest()
    return packs_folder() / f"{digest}{TIER.suffix}"


def kept() -> list[Kept]:
    """List the packs, the last used first."""
    return [
        Kept(path, status.st_size, status.st_mtime, _header(path)) for path, status in TIER.files()
    ]


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
    TIER.write(
        target,
        header.n_bytes,
        lambda path: write(path, header, matrices, progress),
        most_bytes=most_bytes,
        source=display(source),
        is_whole=lambda path: _header(path) is not None,
        before=lambda: _remove_of(source),
        on_wait=on_wait,
    )
    return target


def _remove_of(source: str) -> None:
    """Remove the packs of earlier states of a file, and damaged ones."""
    for pack in kept():
        if pack.header is None or pack.header.source == source:
            remove_pack(pack.path)


def _header(path: Path) -> Header | None:
    try:
        return read_header(path)
    except (OSError, ModelFormatError):
        return None
