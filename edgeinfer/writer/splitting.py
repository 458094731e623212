"""Spread a model over the files of a split set, by the convention that `loader/shards.py` reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.fields import padded
from edgeinfer.loader.mapped import display
from edgeinfer.loader.shards import MAX_SHARDS, shard_name
from edgeinfer.writer.entries import Entry, with_entries
from edgeinfer.writer.gguf import FilePlan, TensorPlan, alignment_of, plan

SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """A file to be written and its name."""

    name: str
    file: FilePlan


def whole(name: str, entries: Sequence[Entry], tensors: Sequence[TensorPlan]) -> list[NamedPlan]:
    """Plan one file that holds everything."""
    return [NamedPlan(name, plan(_without_split(entries), tensors))]


def split(
    name: str, entries: Sequence[Entry], groups: Sequence[Sequence[TensorPlan]]
) -> list[NamedPlan]:
    """Plan a set of one file a group; the first has the metadata. One group makes a whole file."""
    if len(groups) == 1:
        return whole(name, entries, groups[0])
    if len(groups) > MAX_SHARDS:
        raise InvalidParameterError(
            f"{display(name)}: would be {len(groups)} files (need at most {MAX_SHARDS}); "
            "allow larger ones"
        )
    entries = _without_split(entries)
    alone = [entry for entry in entries if entry.key == "general.alignment"]
    n_tensors = sum(map(len, groups))
    plans = []
    for i, group in enumerate(groups):
        place = (
            Entry("split.no", "u16", i),
            Entry("split.count", "u16", len(groups)),
            Entry("split.tensors.count", "i32", n_tensors),
        )
        shard = plan(with_entries(alone if i else entries, place), group)
        plans.append(NamedPlan(shard_name(Path(name).stem, i, len(groups)), shard))
    return plans


def by_size(
    entries: Sequence[Entry], tensors: Sequence[TensorPlan], most_bytes: int
) -> list[list[TensorPlan]]:
    """Group tensors, in order, so that no group's data exceeds `most_bytes` unless one does."""
    alignment = alignment_of(entries)
    groups: list[list[TensorPlan]] = [[]]
    room = most_bytes
    for tensor in tensors:
        n_bytes = padded(tensor.n_bytes, alignment)
        if groups[-1] and n_bytes > room:
            groups.append([])
            room = most_bytes
        groups[-1].append(tensor)
        room -= n_bytes
    return groups


def _without_split(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.key not in SPLIT_KEYS]
