"""Write the planned files of a model and give them their names once they read back as written."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeinfer.errors import ResourceError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.writer.gguf import Bytes, write
from edgeinfer.writer.splitting import NamedPlan
from edgeinfer.writer.workplace import PartFile, Targets, Workplace, workplace


def targets_of(target: Path, plans: Sequence[NamedPlan]) -> Targets:
    """Return where the planned files go. A link to a file stays, and what it points at goes."""
    path = Path(os.path.realpath(target)) if len(plans) == 1 else target
    names = (path.name,) if len(plans) == 1 else tuple(named.name for named in plans)
    return Targets(path.parent, names)


def write_files(
    plans: Sequence[NamedPlan],
    targets: Targets,
    pieces: Iterator[Bytes],
    *,
    overwrite: bool = True,
    reread_every: int = 1,
) -> None:
    """Write all files, read them again, and only then let them appear.

    `pieces` are the data of all tensors in file order; one stretch in `reread_every` is read again.
    Raises ResourceError if the disk is full or faulty, InvalidParameterError if without `overwrite`
    a target appeared meanwhile; what was there is unchanged then.
    """
    with workplace(targets) as place:
        write_parts(place, plans, pieces, reread_every=reread_every)
        place.publish(overwrite=overwrite)


def write_parts(
    place: Workplace,
    plans: Sequence[NamedPlan],
    pieces: Iterator[Bytes],
    *,
    reread_every: int = 1,
) -> Path:
    """Write all files in a workplace, read them again and return the path of the first."""
    parts = []
    for name, named in zip(place.targets.names, plans, strict=True):
        with place.file(name, reread_every=reread_every) as part:
            write(named.file, pieces, part.write)
        parts.append(part)
    _verify(parts, plans)
    return parts[0].path


def rewrite_heads(
    place: Workplace, before: Sequence[NamedPlan], after: Sequence[NamedPlan]
) -> None:
    """Put other metadata, that takes as many bytes, into files that were written."""
    for name, old, new in zip(place.targets.names, before, after, strict=True):
        if old.file.header != new.file.header:
            assert len(old.file.header) == len(new.file.header), name
            place.rewrite_head(name, new.file.header)


def _verify(parts: Sequence[PartFile], plans: Sequence[NamedPlan]) -> None:
    """Read what was written again: its bytes, then as a model file."""
    for part in parts:
        part.verify()
    planned = {t.name: t for named in plans for t in named.file.tensors}
    with open_gguf(parts[0].path) as found:
        same = found.tensors.keys() == planned.keys() and all(
            (t.shape, t.format) == (planned[name].shape, planned[name].format)
            for name, t in found.tensors.items()
        )
        if not same:
            raise ResourceError(
                f"{display(parts[0].path)}: reads back as another model; the disk or the memory "
                "is faulty"
            )
