"""Copy a model file with its tensors in other formats; the copy appears whole or not at all.

The files are written beside the target, synced, read again and only then renamed: whatever happens
before leaves a file that was there as it was. Knows no recipe.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.quantizing.choices import Chosen
from edgeinfer.quantizing.conversion import Bytes, Encode, Floats, converted, pieces_of
from edgeinfer.quantizing.source import SourceRows
from edgeinfer.writer.entries import Entry
from edgeinfer.writer.gguf import TensorPlan
from edgeinfer.writer.publishing import targets_of, write_parts
from edgeinfer.writer.splitting import NamedPlan, by_size, split, whole
from edgeinfer.writer.workplace import Targets, Workplace, check_room, check_targets

Progress = Callable[[int, int], None]
"""Called with (bytes of the source that are done, bytes of the source in all)."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """Over how many files a copy is spread: one, as many as the source, or by their size."""

    as_source: bool = False
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.as_source and self.max_bytes is not None:
            raise InvalidParameterError("keep_split and split_max_bytes: found both (need one)")
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise InvalidParameterError(
                f"split_max_bytes: found {self.max_bytes} (need more than 0)"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A copy that is planned: every size is known."""

    file: GgufFile
    chosen: Sequence[Chosen]
    importance: Mapping[str, Floats]
    plans: Sequence[NamedPlan]
    targets: Targets

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to be."""
        return tuple(self.targets.folder / name for name in self.targets.names)

    @property
    def n_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(named.file.n_bytes for named in self.plans)


def plan_copy(
    file: GgufFile,
    target: Path,
    entries: Sequence[Entry],
    chosen: Sequence[Chosen],
    importance: Mapping[str, Floats],
    splitting: Splitting,
) -> Copy:
    """Lay out the files of a copy. Reads no weights and looks at no target."""
    tensors = [TensorPlan(c.tensor.name, c.tensor.shape, c.format) for c in chosen]
    if splitting.max_bytes is not None:
        plans = split(target.name, entries, by_size(entries, tensors, splitting.max_bytes))
    elif splitting.as_source:
        plans = split(target.name, entries, _as_source(file, tensors))
    else:
        plans = whole(target.name, entries, tensors)
    return Copy(file, chosen, importance, plans, targets_of(target, plans))


def check_target(copy: Copy, *, overwrite: bool) -> None:
    """Refuse what would harm the source or what is there. Raises InvalidParameterError."""
    check_targets(copy.targets, [part.path for part in copy.file.parts], overwrite=overwrite)


def write_copy(
    copy: Copy, place: Workplace, encode: Encode, n_threads: int, progress: Progress | None
) -> Path:
    """Write a copy's files in a workplace and return the path of the first.

    Raises as `conversion.converted` does, and ResourceError of the disk, at once if it has no room.
    """
    check_room(copy.targets, copy.n_bytes)
    with (
        SourceRows(copy.file) as source,
        closing(_data(copy, source, encode, n_threads, progress)) as pieces,
    ):
        return write_parts(place, copy.plans, pieces)


def _as_source(file: GgufFile, tensors: Sequence[TensorPlan]) -> list[list[TensorPlan]]:
    """Group the tensors by the file of the source they come from."""
    left: Iterator[TensorPlan] = iter(tensors)
    return [[next(left) for _ in part.extents] for part in file.parts]


def _data(
    copy: Copy, source: SourceRows, encode: Encode, n_threads: int, progress: Progress | None
) -> Generator[Bytes, None, None]:
    """Yield the data of all tensors in file order."""
    total = sum(c.tensor.n_bytes for c in copy.chosen)
    done = 0
    pieces = (
        piece
        for c in copy.chosen
        for piece in pieces_of(c.tensor, c.format, copy.importance.get(c.tensor.name))
    )
    with closing(converted(source, pieces, encode, n_threads=n_threads)) as ready:
        for piece, data in ready:
            done += (piece.rows.stop - piece.rows.start) * piece.tensor.row_bytes
            if progress:
                progress(done, total)
            yield data
