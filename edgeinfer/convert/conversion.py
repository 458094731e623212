"""Convert a folder: its configuration, weights and tokenizer in, a GGUF file out.

Weights are streamed, so memory is that of a few million values. The file appears whole or not at
all.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.convert.answers import answering
from edgeinfer.convert.checkpoint import open_checkpoint
from edgeinfer.convert.config import read_config
from edgeinfer.convert.families import family_of
from edgeinfer.convert.general import general_keys, more_metadata
from edgeinfer.convert.keys import Keys, gives_scores
from edgeinfer.convert.naming import named_weights
from edgeinfer.convert.sentence import NO_MODULES, read_modules
from edgeinfer.convert.source import CheckpointRows
from edgeinfer.convert.tokens.tokenizer import tokenizer_keys
from edgeinfer.errors import InvalidParameterError, ModelFormatError, ModelNotFoundError
from edgeinfer.kernels.cpus import default_threads
from edgeinfer.loader.mapped import display
from edgeinfer.quant.formats import FORMATS, Format
from edgeinfer.quant.recipe import fitting
from edgeinfer.quant.roles import may_be_quantized
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.conversion import Bytes, converted, pieces_of
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.writer.entries import Entry, with_entries
from edgeinfer.writer.gguf import TensorPlan
from edgeinfer.writer.publishing import targets_of, write_files
from edgeinfer.writer.splitting import NamedPlan, by_size, split, whole
from edgeinfer.writer.workplace import check_room, check_targets

EMBEDDINGS = "token_embd.weight"
OUT_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "auto": ""}

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


def convert(
    folder: str | os.PathLike[str],
    outfile: str | os.PathLike[str] | None = None,
    *,
    outtype: str = "auto",
    vocab_only: bool = False,
    metadata: Mapping[str, object] | None = None,
    split_max_bytes: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write a model of transformers as a GGUF file.

    Args:
        folder: with config.json, safetensors files and tokenizer.json.
        outfile: the file to write; without it, FOLDER/NAME-OUTTYPE.gguf.
        outtype: the format of matrices: "f32", "f16", "bf16", "q8_0", or "auto" for that of the
            checkpoint (16 bits where it has 32).
        vocab_only: write no weights, as for a tokenizer's tests.
        metadata: keys `general.*` to be added or replaced.
        split_max_bytes: write a set of files whose tensors take at most so much each.
        overwrite: replace a file that is there.
        dry_run: write nothing, report what would be.
        n_threads: threads that encode; None for what affinity and quota allow.
        progress: called from this thread while bytes are written.

    Raises:
        InvalidParameterError: an option is wrong, or the target exists.
        ModelNotFoundError, ModelFormatError: a file of the folder is missing or damaged.
        UnsupportedModelError: the model needs something that a GGUF file, or edgeinfer, lacks.
        ResourceError: the disk is full or fails; what was there is unchanged.
    """
    if outtype not in OUT_TYPES:
        known = ", ".join(OUT_TYPES)
        raise InvalidParameterError(f"outtype: found {outtype!r} (need one of {known})")
    source = Path(folder)
    if not source.is_dir():
        raise ModelNotFoundError(f"{display(source)}: no such folder (need config.json in one)")
    config = read_config(source)
    family = answering(source, family_of(config), config)
    keys = family.keys(config)
    after = NO_MODULES if gives_scores(keys) else read_modules(source)
    with after as modules, open_checkpoint(source) as checkpoint:
        weights = named_weights(checkpoint.tensors, family, config)
        rows = CheckpointRows(weights | modules.weights)
        table = rows.tensors.get(EMBEDDINGS)
        if table is None:
            raise ModelFormatError(
                f"{display(source)}: found no {EMBEDDINGS} (need the embeddings)"
            )
        format = FORMATS[OUT_TYPES[outtype] or _half_of(table)]
        chosen = [] if vocab_only else [(t, _format(t, format)) for t in rows.tensors.values()]
        keys = _prefixed(family.arch, with_entries(keys, modules.keys))
        keys = general_keys(source, family.arch, format) + keys
        keys += tokenizer_keys(source, config, n_vocab=table.shape[0])
        keys = with_entries(keys, more_metadata(metadata or {}))
        name = f"{source.resolve().name}-{format.name}.gguf"
        target = source / name if outfile is None else Path(outfile)
        plans = [TensorPlan(t.name, t.shape, to) for t, to in chosen]
        files = _files(target.name, keys, plans, split_max_bytes)
        targets = targets_of(target, files)
        report = Conversion(
            arch=family.arch,
            outtype=format.name,
            files=tuple(targets.folder / name for name in targets.names),
            n_bytes=sum(named.file.n_bytes for named in files),
            tensors=tuple(plans),
            fallbacks=tuple(t.name for t, to in chosen if _fell_back(t, to, format)),
        )
        if dry_run:
            return report
        sources = [file.path for file in checkpoint.files + modules.files]
        check_targets(targets, sources, overwrite=overwrite)
        check_room(targets, report.n_bytes)
        with closing(_data(rows, chosen, n_threads or default_threads(), progress)) as pieces:
            write_files(files, targets, pieces)
    return report


def _files(
    name: str, keys: Keys, plans: Sequence[TensorPlan], split_max_bytes: int | None
) -> list[NamedPlan]:
    if split_max_bytes is None:
        return whole(name, keys, plans)
    return split(name, keys, by_size(keys, plans, split_max_bytes))


def _half_of(table: Tensor) -> str:
    return "F16" if table.format.name == "F16" else "BF16"


def _format(tensor: Tensor, wanted: Format) -> Format:
    if tensor.format.name == "MXFP4":  # as its authors trained it
        return tensor.format
    if not may_be_quantized(tensor.name, tensor.shape):
        return FORMATS["F32"]
    return FORMATS[fitting(wanted.name, tensor.n_columns)]


def _fell_back(tensor: Tensor, to: Format, wanted: Format) -> bool:
    return to.name not in (wanted.name, "F32") and to is not tensor.format


def _prefixed(arch: str, keys: Keys) -> Keys:
    return [
        Entry(arch + key.key, key.type_name, key.value) if key.key.startswith(".") else key
        for key in keys
    ]


def _data(
    rows: CheckpointRows,
    chosen: Sequence[tuple[Tensor, Format]],
    n_threads: int,
    progress: Progress | None,
) -> Generator[Bytes, None, None]:
    """Yield the data of all tensors in file order."""
    total = sum(tensor.n_bytes for tensor, _ in chosen)
    done = 0
    pieces = (piece for tensor, to in chosen for piece in pieces_of(tensor, to, None))
    encode = encoder({to.name for tensor, to in chosen if to is not tensor.format})
    with closing(converted(rows, pieces, encode, n_threads=n_threads)) as ready:
        for piece, data in ready:
            n_bytes = (piece.rows.stop - piece.rows.start) * piece.tensor.row_bytes
            done += n_bytes
            if progress:
                progress(done, total)
            yield data
