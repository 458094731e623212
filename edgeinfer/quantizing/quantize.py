"""Quantize a model file: choose formats, stream the tensors through them, publish the result.

The target appears whole or not at all: the files are written beside it, synced, read again and only
then renamed. Whatever happens before leaves a file that was there as it was.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.cpus import default_threads
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.quant.recipe import QUANTIZATION_VERSION, recipe_named
from edgeinfer.quantizing.choices import (
    Choices,
    Chosen,
    choose,
    facts_of,
    format_named,
    tensor_types_of,
)
from edgeinfer.quantizing.conversion import Bytes, Encode, converted, pieces_of
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.report import QuantizeReport, tensor_reports
from edgeinfer.quantizing.source import SourceRows
from edgeinfer.writer.entries import Entry, entries_of, with_entries
from edgeinfer.writer.gguf import TensorPlan
from edgeinfer.writer.publishing import targets_of, write_files
from edgeinfer.writer.splitting import NamedPlan, by_size, split, whole
from edgeinfer.writer.workplace import Targets, check_room, check_targets

Progress = Callable[[int, int], None]
"""Called with (bytes of the source that are done, bytes of the source in all)."""


def quantize(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    recipe: str,
    *,
    tensor_types: Mapping[str, str] | None = None,
    output_type: str | None = None,
    embedding_type: str | None = None,
    pure: bool = False,
    leave_output: bool = False,
    strict: bool = False,
    allow_requantize: bool = False,
    split_max_bytes: int | None = None,
    keep_split: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> QuantizeReport:
    """Write a quantized copy of a GGUF model.

    Args:
        source: a GGUF file, or the first of a split set.
        target: the file to write; of a split set, the name its files' names are made of.
        recipe: "Q4_K_M", "Q8_0", "F16" and so on; letter case does not count.
        tensor_types: a regular expression to a format: what matches a tensor's name gets it, the
            first that matches counts.
        output_type, embedding_type: formats of output.weight and of the token embeddings.
        pure: give every matrix the recipe's base format.
        leave_output: leave output.weight as it is.
        strict: refuse where rows do not allow the wanted format, instead of falling back.
        allow_requantize: take a source that is quantized already.
        split_max_bytes: write a split set of files whose tensors take at most so much.
        keep_split: write a set split as the source is.
        overwrite: replace a file that is there.
        dry_run: write nothing, report what would be.
        n_threads: threads that encode; None for what affinity and quota allow.
        progress: called from this thread while bytes are written.

    Raises:
        InvalidParameterError: an option is wrong, the target exists or is the source, the source
            is quantized already.
        ModelNotFoundError, ModelFormatError: the source is missing or damaged.
        UnsupportedModelError: `strict` and a fallback would be needed, or a weight too large.
        ResourceError: the disk is full or fails; what was there is unchanged.
    """
    choices = Choices(
        recipe=recipe_named(recipe),
        tensor_types=tensor_types_of(tensor_types or {}),
        output_type=format_named(output_type, "output type") if output_type else None,
        embedding_type=format_named(embedding_type, "embedding type") if embedding_type else None,
        pure=pure,
        leave_output=leave_output,
        strict=strict,
        allow_requantize=allow_requantize,
    )
    if keep_split and split_max_bytes is not None:
        raise InvalidParameterError("keep_split and split_max_bytes: found both (need one)")
    if split_max_bytes is not None and split_max_bytes <= 0:
        raise InvalidParameterError(f"split_max_bytes: found {split_max_bytes} (need more than 0)")
    with open_gguf(source) as file:
        where = display(file.path)
        chosen = choose(file.tensors, facts_of(file.metadata, file.tensors), choices, where=where)
        plans = _plans(file, Path(target), chosen, choices, split_max_bytes, keep_split)
        targets = targets_of(Path(target), plans)
        report = QuantizeReport(
            recipe=choices.recipe.name,
            files=tuple(targets.folder / name for name in targets.names),
            source_bytes=file.n_bytes,
            n_bytes=sum(named.file.n_bytes for named in plans),
            tensors=tensor_reports(chosen, frozenset()),
        )
        if dry_run:
            return report
        check_targets(targets, [part.path for part in file.parts], overwrite=overwrite)
        check_room(targets, report.n_bytes)
        _write(file, chosen, plans, targets, encoder(), n_threads or default_threads(), progress)
    return report


def _plans(
    file: GgufFile,
    target: Path,
    chosen: Sequence[Chosen],
    choices: Choices,
    split_max_bytes: int | None,
    keep_split: bool,
) -> list[NamedPlan]:
    """Lay out the files to be written."""
    entries = with_entries(
        entries_of(file.metadata),
        (
            Entry("general.quantization_version", "u32", QUANTIZATION_VERSION),
            Entry("general.file_type", "u32", choices.recipe.file_type),
        ),
    )
    tensors = [TensorPlan(c.tensor.name, c.tensor.shape, c.format) for c in chosen]
    if split_max_bytes is not None:
        return split(target.name, entries, by_size(entries, tensors, split_max_bytes))
    if keep_split:
        return split(target.name, entries, _as_source(file, tensors))
    return whole(target.name, entries, tensors)


def _as_source(file: GgufFile, tensors: Sequence[TensorPlan]) -> list[list[TensorPlan]]:
    """Group the tensors by the file of the source they come from."""
    groups, at = [], 0
    for part in file.parts:
        groups.append(list(tensors[at : at + len(part.extents)]))
        at += len(part.extents)
    return groups


def _write(
    file: GgufFile,
    chosen: Sequence[Chosen],
    plans: Sequence[NamedPlan],
    targets: Targets,
    encode: Encode,
    n_threads: int,
    progress: Progress | None,
) -> None:
    with (
        SourceRows(file) as source,
        closing(_data(source, chosen, encode, n_threads, progress)) as pieces,
    ):
        write_files(plans, targets, pieces)


def _data(
    source: SourceRows,
    chosen: Sequence[Chosen],
    encode: Encode,
    n_threads: int,
    progress: Progress | None,
) -> Generator[Bytes, None, None]:
    """Yield the data of all tensors in file order."""
    total = sum(c.tensor.n_bytes for c in chosen)
    done = 0
    pieces = (piece for c in chosen for piece in pieces_of(c.tensor, c.format, None))
    with closing(converted(source, pieces, encode, n_threads=n_threads)) as ready:
        for piece, data in ready:
            done += (piece.rows.stop - piece.rows.start) * piece.tensor.row_bytes
            if progress:
                progress(done, total)
            yield data
