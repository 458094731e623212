"""Keep prefix files in the cache: those of a model, as many bytes as all may take.

A name is made of what the file is bound to and of its tokens, so a model opens its own alone.
"""

import logging
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from edgeinfer.errors import SessionError
from edgeinfer.loader import kv_file
from edgeinfer.loader.kv_file import Binding, Bytes, Header, KvFile
from edgeinfer.loader.tier import Tier, note_use

ENVIRONMENT = "EDGEINFER_PREFIX_MAX_BYTES"
TIER = Tier("prefixes", ".prefix", "prefix file", ENVIRONMENT, 4 << 30)

MOST_OPEN = 64  # of one model; each is a file descriptor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """A prefix file of the cache. `header` is None if it is damaged."""

    path: Path
    n_bytes: int
    used_s: float
    header: Header | None


def prefix_path(binding: Binding, tokens: tuple[int, ...]) -> Path:
    """Return where the prefix file of these tokens is, or would be."""
    digest = blake2b(array("i", tokens).tobytes(), digest_size=12).hexdigest()
    return TIER.folder / f"{binding.digest()}-{digest}{TIER.suffix}"


def find(binding: Binding, page_len: int, page_bytes: int, state_bytes: int = 0) -> list[KvFile]:
    """Open the last used prefix files of a model; a damaged one is told in the log, not used."""
    found: list[KvFile] = []
    for path, _ in TIER.files():
        if len(found) == MOST_OPEN:
            break
        if not path.name.startswith(f"{binding.digest()}-"):
            continue
        try:
            file = KvFile(path)
            file.need(binding, page_len, page_bytes, state_bytes)
        except (OSError, SessionError) as error:
            log.warning("%s; going on without it. `edgeinfer cache clear` removes it", error)
            continue
        note_use(path)
        found.append(file)
    return found


def kept() -> list[Kept]:
    """List the prefix files, the last used first."""
    return [
        Kept(path, status.st_size, status.st_mtime, _header(path)) for path, status in TIER.files()
    ]


def write_prefix(
    header: Header,
    parts: Callable[[], Iterator[Bytes]],
    *,
    most_bytes: int,
    on_wait: Callable[[], None] = lambda: None,
) -> Path:
    """Write a prefix file unless it is there; make room for it first.

    Raises ResourceError if it is larger than `most_bytes`, which holds for all of them together,
    or the disk is full.
    """
    target = prefix_path(header.binding, header.tokens)
    TIER.write(
        target,
        kv_file.most_bytes(header),
        lambda path: kv_file.write(path, header, parts()),
        most_bytes=most_bytes,
        source="prefix",
        is_whole=_is_whole,
        on_wait=on_wait,
    )
    return target


def _is_whole(path: Path) -> bool:
    """Whether a file is there and every page of it is sound."""
    try:
        with KvFile(path) as file:
            file.check()
    except (OSError, SessionError):
        return False
    return True


def _header(path: Path) -> Header | None:
    try:
        with KvFile(path) as file:
            return file.header
    except (OSError, SessionError):
        return None
