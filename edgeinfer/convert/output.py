"""Write what was made of a folder as a GGUF file, or a set: streamed, whole or not at all."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.convert.keys import Keys
from edgeinfer.convert.source import CheckpointRows
from edgeinfer.quant.formats import Format
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.conversion import Bytes, converted, pieces_of
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.writer.gguf import TensorPlan
from edgeinfer.writer.publishing import targets_of, write_files
from edgeinfer.writer.splitting import by_size, split, whole
from edgeinfer.writer.workplace import check_room, check_targets

# Reading all of it again takes a quarter of the disk's time, and there is the folder to begin anew.
REREAD_EVERY = 4

Progress = Callable[[int, int], None]
"""Called with (bytes of the checkpoint that are done, bytes of the checkpoint in all)."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written, or would be.

    Attributes:
        arch: `general.architecture`.
        outtype: the format of the matrices.
        files: the file, or those of a set.
        n_bytes: of all files.
        tensors: name, shape and format of each.
        fallbacks: names of tensors whose rows do not fit `outtype`; they became F16.
    """

    arch: str
    outtype: str
    files: tuple[Path, ...]
    n_bytes: int
    tensors: tuple[TensorPlan, ...]
    fallbacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """What a file is to hold, and the files it comes from."""

    arch: str
    format: Format
    keys: Keys
    rows: CheckpointRows
    chosen: Sequence[tuple[Tensor, Format]]
    sources: Sequence[Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a file goes, and how it gets there; see `convert`."""

    folder: Path
    outfile: Path | None
    split_max_bytes: int | None
    overwrite: bool
    dry_run: bool
    n_threads: int
    progress: Progress | None

    def write(self, content: Content) -> Conversion:
        """Write the file, unless it is a dry run. Raises as `convert` does."""
        chosen, format = content.chosen, content.format
        name = f"{self.folder.resolve().name}-{format.name}.gguf"
        target = self.folder / name if self.outfile is None else self.outfile
        plans = [TensorPlan(t.name, t.shape, to) for t, to in chosen]
        if self.split_max_bytes is None:
            files = whole(target.name, content.keys, plans)
        else:
            groups = by_size(content.keys, plans, self.split_max_bytes)
            files = split(target.name, content.keys, groups)
        targets = targets_of(target, files)
        report = Conversion(
            arch=content.arch,
            outtype=format.name,
            files=tuple(targets.folder / name for name in targets.names),
            n_bytes=sum(named.file.n_bytes for named in files),
            tensors=tuple(plans),
            fallbacks=tuple(t.name for t, to in chosen if _fell_back(t, to, format)),
        )
        if self.dry_run:
            return report
        check_targets(targets, content.sources, overwrite=self.overwrite)
        check_room(targets, report.n_bytes)
        with closing(self._data(content)) as pieces:
            write_files(files, targets, pieces, overwrite=self.overwrite, reread_every=REREAD_EVERY)
        return report

    def _data(self, content: Content) -> Generator[Bytes, None, None]:
        """Yield the data of all tensors in file order."""
        chosen = content.chosen
        total = sum(tensor.n_bytes for tensor, _ in chosen)
        done = 0
        pieces = (piece for tensor, to in chosen for piece in pieces_of(tensor, to, None))
        formats = {to.name for tensor, to in chosen if to is not tensor.format}
        encode = encoder(formats, {tensor.name for tensor, _ in chosen})
        with closing(converted(content.rows, pieces, encode, n_threads=self.n_threads)) as ready:
            for piece, data in ready:
                done += (piece.rows.stop - piece.rows.start) * piece.tensor.row_bytes
                if self.progress:
                    self.progress(done, total)
                yield data


def _fell_back(tensor: Tensor, to: Format, wanted: Format) -> bool:
    return to.name not in (wanted.name, "F32") and to is not tensor.format
