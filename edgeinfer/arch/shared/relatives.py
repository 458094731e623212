"""Say what an unknown architecture has that the nearest known one lacks, by its tensors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from edgeinfer.arch.shared.rotation import FACTOR_TENSORS
from edgeinfer.errors import EdgeInferError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

MAX_LAYERS = 128  # no more are tried: the file is of someone unknown
MAX_LISTED = 6
_LAYER = re.compile(r"^blk\.\d+\.")

Build = Callable[[str, Metadata], Program]


@dataclass(frozen=True, slots=True)
class Relative:
    """A known architecture: kinds of tensors it has no place for, and those it needs besides."""

    name: str
    unplaced: list[str]
    missing: list[str]

    @property
    def distance(self) -> int:
        """Kinds of tensors in which it differs."""
        return len(self.unplaced) + len(self.missing)


def nearest(
    metadata: Metadata, tensors: Mapping[str, Tensor], names: Iterable[str], build: Build
) -> str:
    """Return a sentence about the known architecture that is nearest, or nothing if none is near.

    `build` makes a program of an architecture's name and metadata.
    """
    try:
        metadata.integer(".block_count", least=1, most=MAX_LAYERS)
    except EdgeInferError:
        return ""
    found = [one for name in names if (one := _relative(name, metadata, tensors, build))]
    if not found:
        return ""
    best = min(found, key=lambda one: (one.distance, -_likeness(one.name, metadata.arch)))
    if not best.distance:
        return f"; its tensors are those of {best.name!r}, but it may compute otherwise"
    lacks = f"has no place for {_listed(best.unplaced)}" if best.unplaced else ""
    needs = f"needs {_listed(best.missing)}, which the file lacks" if best.missing else ""
    return f"; the nearest, {best.name!r}, {' and '.join(filter(None, (lacks, needs)))}"


def _relative(
    name: str, metadata: Metadata, tensors: Mapping[str, Tensor], build: Build
) -> Relative | None:
    try:
        program = build(name, _renamed(metadata, name))
    except EdgeInferError:  # a key of its own is missing
        return None
    used = program.weights().keys() | program.left_out | set(FACTOR_TENSORS)
    common = used & tensors.keys()
    if 2 * len(common) < len(tensors):
        return None
    return Relative(name, _kinds(tensors.keys() - used), _kinds(program.weights().keys() - common))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other[:64]).ratio()


def _renamed(metadata: Metadata, name: str) -> Metadata:
    """Return metadata as a file of another architecture would have it."""
    old = f"{metadata.arch}."
    values = {
        name + key[len(old) - 1 :] if key.startswith(old) else key: metadata[key]
        for key in metadata
    }
    return Metadata(values | {"general.architecture": name}, where=metadata.where)


def _kinds(names: Collection[str]) -> list[str]:
    return sorted({_LAYER.sub("blk.*.", name) for name in names})


def _listed(kinds: list[str]) -> str:
    more = f" and {len(kinds) - MAX_LISTED} kinds more" if len(kinds) > MAX_LISTED else ""
    return ", ".join(repr(kind[:64]) for kind in kinds[:MAX_LISTED]) + more
