"""Convert a folder: its configuration, weights and tokenizer in, a GGUF file out.

Weights are streamed, so memory is that of a few million values. The file appears whole or not at
all.
"""

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from edgeinfer.convert import adapter
from edgeinfer.convert.answers import answering
from edgeinfer.convert.checkpoint import open_checkpoint
from edgeinfer.convert.config import NAME as CONFIG
from edgeinfer.convert.config import TIED, Config, read_config
from edgeinfer.convert.families import family_of
from edgeinfer.convert.fitting import check_fit
from edgeinfer.convert.general import general_keys, more_metadata
from edgeinfer.convert.keys import Keys, gives_scores
from edgeinfer.convert.naming import named_weights
from edgeinfer.convert.output import Content, Conversion, Output, Progress
from edgeinfer.convert.sentence import NO_MODULES, read_modules
from edgeinfer.convert.source import CheckpointRows
from edgeinfer.convert.tokens.tokenizer import tokenizer_keys
from edgeinfer.convert.tying import as_stored
from edgeinfer.errors import (
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from edgeinfer.kernels.cpus import threads_or_default
from edgeinfer.loader.mapped import display
from edgeinfer.quant.formats import FORMATS, Format
from edgeinfer.quant.recipe import fitting
from edgeinfer.quant.roles import EMBEDDINGS, OUTPUT, may_be_quantized
from edgeinfer.quant.tensor import Tensor
from edgeinfer.writer.entries import Entry, with_entries

WRITES = re.compile("(ForCausalLM|LMHeadModel|ForConditionalGeneration)$")  # classes that do
OUT_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "auto": ""}


def convert(
    folder: str | os.PathLike[str],
    outfile: str | os.PathLike[str] | None = None,
    *,
    outtype: str = "auto",
    base: str | os.PathLike[str] | None = None,
    vocab_only: bool = False,
    metadata: Mapping[str, object] | None = None,
    split_max_bytes: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write a model of transformers, or an adapter of PEFT, as a GGUF file.

    Args:
        folder: with config.json, safetensors files and a tokenizer; or with adapter_config.json and
            adapter_model.safetensors.
        outfile: the file to write; without it, FOLDER/NAME-OUTTYPE.gguf.
        outtype: the format of matrices: "f32", "f16", "bf16", "q8_0", or "auto" for that of the
            checkpoint (16 bits where it has 32, but in adapters).
        base: the folder of an adapter's model, of which config.json is enough; None for the one
            that the adapter names.
        vocab_only: write no weights, as for a tokenizer's tests.
        metadata: keys `general.*` to be added or replaced.
        split_max_bytes: write a set of files whose tensors take at most so much each.
        overwrite: replace a file that is there.
        dry_run: write nothing, report what would be.
        n_threads: threads that encode, 1 to 512; None for what affinity and quota allow.
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
    n_threads = threads_or_default(n_threads)
    source = Path(folder)
    _check_folder(source)
    output = Output(
        folder=source,
        outfile=None if outfile is None else Path(outfile),
        split_max_bytes=split_max_bytes,
        overwrite=overwrite,
        dry_run=dry_run,
        n_threads=n_threads,
        progress=progress,
    )
    more = more_metadata(metadata or {})
    if not (source / adapter.SETTINGS).is_file():
        if base is not None:
            raise InvalidParameterError(
                f"base: {display(source)} is no adapter: found no {adapter.SETTINGS} (need it, or "
                "no base)"
            )
        return _model(source, OUT_TYPES[outtype], more, output, vocab_only=vocab_only)
    if vocab_only:
        raise InvalidParameterError("vocab_only: an adapter has no tokenizer (need its model)")
    return _adapter(source, None if base is None else Path(base), OUT_TYPES[outtype], more, output)


def _model(
    source: Path, outtype: str, more: Keys, output: Output, *, vocab_only: bool
) -> Conversion:
    config = read_config(source)
    family = family_of(config)
    with open_checkpoint(source) as checkpoint, ExitStack() as opened:
        config = as_stored(config, checkpoint.tensors)
        family = answering(source, family, config)
        keys = family.keys(config)
        modules = NO_MODULES if gives_scores(keys) else opened.enter_context(read_modules(source))
        weights = named_weights(checkpoint.tensors, family, config)
        rows = CheckpointRows(weights | modules.weights)
        table = rows.tensors.get(EMBEDDINGS)
        if table is None:
            raise ModelFormatError(
                f"{display(source)}: found no {EMBEDDINGS} (need the embeddings)"
            )
        if OUTPUT not in rows.tensors and not gives_scores(keys):
            _check_tied(config)
        format = FORMATS[outtype or _half_of(table)]
        chosen = [] if vocab_only else [(t, _format(t, format)) for t in rows.tensors.values()]
        keys = _prefixed(family.arch, with_entries(keys, modules.keys))
        keys = general_keys(source, family.arch, format) + keys
        keys += tokenizer_keys(source, config, n_vocab=table.shape[0])
        if not vocab_only:
            check_fit(keys, rows, config.values.where)
        files = [file.path for file in checkpoint.files + modules.files]
        return output.write(
            Content(family.arch, format, with_entries(keys, more), rows, chosen, files)
        )


def _check_folder(source: Path) -> None:
    """Raise ModelNotFoundError, with what to do, unless there is something to convert."""
    where = display(source)
    if source.is_file():
        is_gguf = source.suffix == ".gguf"
        raise ModelNotFoundError(
            f"{where}: a GGUF file is converted already (`edgeinfer quantize` writes other formats)"
            if is_gguf
            else f"{where}: a file (need the folder that has it, config.json and a tokenizer)"
        )
    if not source.is_dir():
        raise ModelNotFoundError(f"{where}: no such folder (need one with config.json)")
    if any((source / name).is_file() for name in (CONFIG, adapter.SETTINGS)):
        return
    inside = [*source.glob(f"*/{CONFIG}"), *source.glob(f"snapshots/*/{CONFIG}")]
    hint = f"; did you mean {display(inside[0].parent)}?" if len(inside) == 1 else ""
    raise ModelNotFoundError(
        f"{where}: found no {CONFIG} (need a folder as transformers saves it, with {CONFIG}, "
        f"*.safetensors and a tokenizer){hint}"
    )


def _check_tied(config: Config) -> None:
    """Raise ModelFormatError if a model without an output matrix needs one."""
    if WRITES.search(config.architecture) and not config.is_tied:
        raise config.error(
            TIED,
            "false, and no lm_head.weight (need one of them; where the embeddings are the output, "
            "write true)",
        )


def _adapter(
    source: Path, base: Path | None, outtype: str, more: Keys, output: Output
) -> Conversion:
    settings = adapter.read_settings(source)
    folder = adapter.base_of(settings, base)
    config = read_config(folder)
    family = family_of(config)
    with open_checkpoint(source) as checkpoint:
        weights = adapter.adapter_weights(
            checkpoint.tensors, settings, family, config, _shapes(folder)
        )
        rows = CheckpointRows(weights)
        tensors = list(rows.tensors.values())
        format = FORMATS[outtype] if outtype else tensors[0].format
        chosen = [(t, FORMATS[fitting(format.name, t.n_columns)]) for t in tensors]
        keys = with_entries(
            general_keys(source, family.arch, format), adapter.adapter_keys(settings)
        )
        files = [file.path for file in checkpoint.files]
        return output.write(
            Content(family.arch, format, with_entries(keys, more), rows, chosen, files)
        )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a checkpoint's tensors, none if its weights are not there."""
    try:
        with open_checkpoint(folder) as checkpoint:
            return {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    except (ModelNotFoundError, UnsupportedModelError):
        return {}


def _half_of(table: Tensor) -> str:
    return "F16" if table.format.name == "F16" else "BF16"


def _format(tensor: Tensor, wanted: Format) -> Format:
    if tensor.format.name == "MXFP4":  # as its authors trained it
        return tensor.format
    if not may_be_quantized(tensor.name, tensor.shape):
        return FORMATS["F32"]
    return FORMATS[fitting(wanted.name, tensor.n_columns)]


def _prefixed(arch: str, keys: Keys) -> Keys:
    return [
        Entry(arch + key.key, key.type_name, key.value) if key.key.startswith(".") else key
        for key in keys
    ]
