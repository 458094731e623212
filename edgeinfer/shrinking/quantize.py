"""Quantize a model file: choose formats, stream the tensors through them, publish the result.

The formats are those of a recipe, or what a goal asks for: the best that fit a size, or the fewest
bytes within a divergence from the source, which is measured.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.cpus import threads_or_default
from edgeinfer.quantizing.choices import Choices, format_named, tensor_types_of
from edgeinfer.quantizing.copying import Splitting
from edgeinfer.quantizing.job import open_job
from edgeinfer.shrinking.meter import Progress
from edgeinfer.shrinking.report import QuantizeReport
from edgeinfer.shrinking.sample_text import SAMPLE_NAME, SAMPLE_TEXT
from edgeinfer.shrinking.work import Goal, Sample, Work


def quantize(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    recipe: str | None = None,
    *,
    max_bytes: int | None = None,
    max_kld: float | None = None,
    text: str | None = None,
    dataset: str = "",
    chunks: int | None = None,
    report: bool = False,
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
        recipe: "Q4_K_M", "Q8_0", "F16" and so on; letter case does not count. None with a goal.
        max_bytes: choose formats, as good as a file of at most this size allows. What noise each
            makes is measured; how much the model suffers from it, too, if there is a text.
        max_kld: choose formats for the smallest file whose KL divergence from the source is at most
            this, in nats, on the text. The file is measured before it appears.
        text: what to measure on, at least 512 tokens like what the model is used for; None takes a
            short text of its own with a bit of everything.
        dataset: the name of the text.
        chunks: most windows of the text to read; None: all.
        report: measure the file on the text, and write what it lost into its metadata.
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
        dry_run: leave no file, report what would be.
        n_threads: threads that encode and measure, 1 to 512; None for all that
            affinity and quota allow.
        progress: called from this thread as progress(stage, n_done, n_total): bytes of the source
            while "quantizing", windows and groups of matrices else. What it raises ends the work.

    Raises:
        InvalidParameterError: an option is wrong, the target exists or is the source, the source
            is quantized already; no formats meet the goal.
        ModelNotFoundError, ModelFormatError: the source is missing or damaged.
        UnsupportedModelError: `strict` and a fallback would be needed, or a weight too large; to
            be measured, a model must be one that edgeinfer runs.
        ResourceError: the disk is full or fails; what was there is unchanged.
    """
    goal = Goal(recipe, max_bytes, max_kld)
    splitting = Splitting(keep_split, split_max_bytes)
    goal.check(splitting, pure=pure)
    choices = Choices(
        recipe=goal.start,
        tensor_types=tensor_types_of(tensor_types or {}),
        output_type=format_named(output_type, "output type") if output_type else None,
        embedding_type=format_named(embedding_type, "embedding type") if embedding_type else None,
        pure=pure,
        leave_output=leave_output,
        strict=strict,
        allow_requantize=allow_requantize,
    )
    with open_job(
        Path(source),
        Path(target),
        choices,
        splitting=splitting,
        imatrix=None if imatrix is None else Path(imatrix),
        n_threads=threads_or_default(n_threads),
    ) as job:
        return Work(
            job=job,
            goal=goal,
            sample=sample_for(goal, text, dataset, chunks, has_report=report),
            has_report=report,
            overwrite=overwrite,
            dry_run=dry_run,
            progress=progress or _silent,
        ).run()


def sample_for(
    goal: Goal, text: str | None, dataset: str, chunks: int | None, *, has_report: bool
) -> Sample | None:
    """Return what to measure on, None where nothing is to be measured.

    Raises InvalidParameterError for a text that nobody would read.
    """
    if goal.max_bytes is not None and text is not None:
        return Sample(text, dataset, chunks)
    if has_report or goal.max_kld is not None:
        if text is None:
            return Sample(SAMPLE_TEXT, SAMPLE_NAME, chunks)
        return Sample(text, dataset, chunks)
    if text is not None or chunks is not None:
        raise InvalidParameterError(
            "text: found one, or chunks, and nothing to measure (need report, max_bytes or max_kld)"
        )
    return None


def _silent(stage: str, n_done: int, n_total: int) -> None:
    pass
