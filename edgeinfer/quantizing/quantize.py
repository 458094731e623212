"""Quantize a model file: choose formats, stream the tensors through them, publish the result."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.cpus import default_threads
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.loader.mapped import display
from edgeinfer.quant.recipe import QUANTIZATION_VERSION, Recipe, recipe_named
from edgeinfer.quantizing.choices import Choices, choose, facts_of, format_named, tensor_types_of
from edgeinfer.quantizing.copying import (
    Progress,
    Splitting,
    check_copy,
    plan_copy,
    write_copy,
)
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.goal import START, formats_within, nearest_recipe
from edgeinfer.quantizing.importance import entries_about, importance_for
from edgeinfer.quantizing.report import QuantizeReport, tensor_reports
from edgeinfer.writer.entries import Entry, entries_of, with_entries


def quantize(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    recipe: str | None = None,
    *,
    max_bytes: int | None = None,
    tensor_types: Mapping[str, str] | None = None,
    output_type: str | None = None,
    embedding_type: str | None = None,
    pure: bool = False,
    leave_output: bool = False,
    strict: bool = False,
    allow_requantize: bool = False,
    imatrix: str | os.PathLike[str] | None = None,
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
        recipe: "Q4_K_M", "Q8_0", "F16" and so on; letter case does not count. None with max_bytes.
        max_bytes: choose formats, as good as a file of at most this size allows: which matrices
            lose least by which is measured.
        tensor_types: a regular expression to a format: what matches a tensor's name gets it, the
            first that matches counts.
        output_type, embedding_type: formats of output.weight and of the token embeddings.
        pure: give every matrix the recipe's base format.
        leave_output: leave output.weight as it is.
        strict: refuse where rows do not allow the wanted format, instead of falling back.
        allow_requantize: take a source that is quantized already.
        imatrix: an importance matrix (`edgeinfer imatrix` makes one): which columns matter most.
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
    splitting = Splitting(keep_split, split_max_bytes)
    choices = Choices(
        recipe=_start(recipe, max_bytes, splitting),
        tensor_types=tensor_types_of(tensor_types or {}),
        output_type=format_named(output_type, "output type") if output_type else None,
        embedding_type=format_named(embedding_type, "embedding type") if embedding_type else None,
        pure=pure,
        leave_output=leave_output,
        strict=strict,
        allow_requantize=allow_requantize,
    )
    n_threads = n_threads or default_threads()
    known = read_imatrix(imatrix) if imatrix is not None else None
    with open_gguf(source) as file:
        facts = facts_of(file.metadata, file.tensors, has_importance=known is not None)
        where = display(file.path)
        chosen = choose(file.tensors, facts, choices, where=where)
        importance = importance_for(chosen, known) if known is not None else {}
        entries = with_entries(
            entries_of(file.metadata),
            (
                Entry("general.quantization_version", "u32", QUANTIZATION_VERSION),
                Entry("general.file_type", "u32", choices.recipe.file_type),
                *(entries_about(known) if known is not None else ()),
            ),
        )
        copy = plan_copy(file, Path(target), entries, chosen, importance, splitting)
        if max_bytes is not None:
            assigned = formats_within(copy, max_bytes, n_threads)
            chosen = choose(file.tensors, facts, replace(choices, assigned=assigned), where=where)
            file_type = Entry("general.file_type", "u32", nearest_recipe(chosen).file_type)
            entries = with_entries(entries, (file_type,))
            copy = plan_copy(file, Path(target), entries, chosen, importance, splitting)
        if not dry_run:
            check_copy(copy, overwrite=overwrite)
            formats = {c.format.name for c in chosen if c.format is not c.tensor.format}
            write_copy(copy, encoder(formats), n_threads, progress)
        return QuantizeReport(
            recipe=choices.recipe.name if max_bytes is None else f"{max_bytes} bytes",
            files=copy.paths,
            source_bytes=file.n_bytes,
            n_bytes=copy.n_bytes,
            tensors=tensor_reports(chosen, importance),
        )


def _start(recipe: str | None, max_bytes: int | None, splitting: Splitting) -> Recipe:
    """Return the recipe, or where the search for formats begins."""
    if (recipe is None) == (max_bytes is None):
        found = "neither" if recipe is None else "both"
        raise InvalidParameterError(f"recipe and max_bytes: found {found} (need one)")
    if recipe is not None:
        return recipe_named(recipe)
    if splitting != Splitting():
        raise InvalidParameterError("max_bytes and a split set: found both (need one)")
    return START
