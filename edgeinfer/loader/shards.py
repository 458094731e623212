"""Join the files of a split set: find the other shards by name, check that they belong together.

The convention is that of llama.cpp's split tool: `NAME-00001-of-00003.gguf`, each shard with
`split.no` (from 0), `split.count` and `split.tensors.count` (tensors of the whole set); the first
shard alone has the model's metadata.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.tensor import Tensor

MAX_SHARDS = 99999  # five digits

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a set that was opened by its first; `number` counts from 0."""

    path: Path
    number: int
    count: int


def others(first: Path, metadata: Metadata) -> Iterator[Shard]:
    """Yield the shards after the first; none if the file is whole.

    Raises ModelFormatError if `first` is another shard, was renamed, or the next file is missing.
    """
    count = metadata.integer("split.count", 1, least=0, most=MAX_SHARDS)
    number = metadata.integer("split.no", 0, least=0, most=max(count - 1, 0))
    if count <= 1:
        return
    match = _NAME.fullmatch(first.name)
    if match is None or int(match["count"]) != count or int(match["number"]) != number + 1:
        need = f"NAME-{number + 1:05}-of-{count:05}.gguf"
        raise ModelFormatError(
            f"{display(first)}: shard {number + 1} of a split set of {count} under another name "
            f"(need {need}); give the files their names back"
        )
    if number:
        start = first.with_name(shard_name(match["stem"], 0, count))
        raise ModelFormatError(
            f"{display(first)}: found shard {number + 1} of {count} (need the first); "
            f"open {display(start)}"
        )
    for i in range(1, count):
        path = first.with_name(shard_name(match["stem"], i, count))
        if not path.exists():
            raise ModelFormatError(
                f"{display(path)}: missing, shard {i + 1} of {count} of {display(first)}; "
                "put all shards into one folder"
            )
        yield Shard(path, i, count)


def check(shard: Shard, first: Metadata, found: Metadata) -> None:
    """Raise ModelFormatError unless `found`, a shard's metadata, fits its place and the first's."""
    for key, need in (("split.no", shard.number), ("split.count", shard.count)):
        if found.integer(key) != need:
            raise found.error(key, f"found {found.integer(key)} (need {need}); files are mixed up")
    for key in ("split.tensors.count", "general.architecture", "general.name"):
        if key in found and found[key] != first.get(key):
            raise found.error(
                key,
                f"found {quote(str(found[key]))}, the first shard has "
                f"{quote(str(first.get(key)))}; shards of two models are mixed",
            )


def merge(shard: Shard, tensors: dict[str, Tensor], more: dict[str, Tensor]) -> None:
    """Add a shard's tensors. Raises ModelFormatError if one was in an earlier shard."""
    for name, tensor in more.items():
        if name in tensors:
            raise ModelFormatError(
                f"{display(shard.path)}: tensor {quote(name)}: also in an earlier shard "
                "(need each name once)"
            )
        tensors[name] = tensor


def check_total(where: str, metadata: Metadata, n_tensors: int) -> None:
    """Raise ModelFormatError if the set states another number of tensors than were found."""
    stated = metadata.integer("split.tensors.count", n_tensors)
    if stated != n_tensors:
        raise ModelFormatError(
            f"{where}: key 'split.tensors.count': found {n_tensors} tensors in all shards "
            f"(need {stated}); a shard is missing or from another model"
        )


def shard_name(stem: str, number: int, count: int) -> str:
    """Return the file name of shard `number`, from 0, of a set of `count`."""
    return f"{stem}-{number + 1:05}-of-{count:05}.gguf"
