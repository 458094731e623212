"""`edgeinfer quantize`: a model file in, a smaller one out, and what became of each tensor."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edgeinfer.cli.eval_report import kld_lines
from edgeinfer.cli.options import read_size, read_text
from edgeinfer.cli.progress import Line, amount
from edgeinfer.cli.tensors import tensor_line
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.shrinking.report import QuantizeReport

MEASURING = "Measuring"
EXCEPTIONS = "Exceptions from the recipe"
FILES = "Files"


def quantize(
    source: Annotated[str, Argument(metavar="SOURCE", help="A GGUF file, best F16 or BF16.")],
    target: Annotated[Path, Argument(metavar="TARGET", help="The file to write.")],
    recipe: Annotated[
        str | None,
        Argument(
            metavar="[RECIPE]",
            help="Q4_K_M, Q5_K_M, Q6_K, Q8_0, Q4_0, IQ4_XS, F16, ...",
            show_default=False,
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        Option(
            "--max-size",
            metavar="SIZE",
            help="In place of a recipe: the best formats for a file of this size, such as 900M.",
        ),
    ] = None,
    max_kld: Annotated[
        float | None,
        Option(
            "--max-kld",
            metavar="NATS",
            help="In place of a recipe: the smallest file whose KL divergence from the source, "
            "measured, is at most this, such as 0.02.",
        ),
    ] = None,
    report: Annotated[
        bool,
        Option(
            "--report",
            rich_help_panel=MEASURING,
            help="Measure what the file lost, and write it into its metadata.",
        ),
    ] = False,
    file: Annotated[
        Path | None,
        Option(
            "--file",
            "-f",
            rich_help_panel=MEASURING,
            help="The text to measure on, like what the model reads (default: a built-in one).",
        ),
    ] = None,
    chunks: Annotated[
        int | None,
        Option(
            "--chunks",
            min=1,
            rich_help_panel=MEASURING,
            help="Most windows of 512 tokens to read (default: all).",
        ),
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        Option(
            "--tensor-type",
            metavar="REGEX=TYPE",
            rich_help_panel=EXCEPTIONS,
            help="Give tensors whose name matches this format; repeatable, the first counts.",
        ),
    ] = None,
    output_type: Annotated[
        str | None,
        Option(
            "--output-type",
            "--output-tensor-type",
            metavar="TYPE",
            rich_help_panel=EXCEPTIONS,
            help="The format of output.weight.",
        ),
    ] = None,
    embedding_type: Annotated[
        str | None,
        Option(
            "--embedding-type",
            "--token-embedding-type",
            metavar="TYPE",
            rich_help_panel=EXCEPTIONS,
            help="The format of the token embeddings.",
        ),
    ] = None,
    leave_output: Annotated[
        bool,
        Option(
            "--leave-output",
            "--leave-output-tensor",
            rich_help_panel=EXCEPTIONS,
            help="Leave output.weight as it is.",
        ),
    ] = False,
    pure: Annotated[
        bool,
        Option("--pure", rich_help_panel=EXCEPTIONS, help="Give all matrices one format."),
    ] = False,
    strict: Annotated[
        bool,
        Option(
            "--strict",
            help="Refuse where rows do not fit a format, instead of taking another.",
        ),
    ] = False,
    allow_requantize: Annotated[
        bool,
        Option("--allow-requantize", help="Take a source that is quantized already."),
    ] = False,
    imatrix: Annotated[
        Path | None,
        Option("--imatrix", metavar="FILE", help="What 'edgeinfer imatrix' found out."),
    ] = None,
    split_max_size: Annotated[
        str | None,
        Option(
            "--split-max-size",
            metavar="SIZE",
            rich_help_panel=FILES,
            help="Write a set of files whose tensors take at most this each, such as 2G.",
        ),
    ] = None,
    keep_split: Annotated[
        bool,
        Option("--keep-split", rich_help_panel=FILES, help="Write a set split as the source is."),
    ] = False,
    force: Annotated[
        bool,
        Option("--force", rich_help_panel=FILES, help="Replace a file that is there."),
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print sizes, write nothing.")] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Print a line for each tensor.")
    ] = False,
    n_threads: Annotated[
        int | None, Option("--threads", "-t", help="Threads (default: all CPUs allowed here).")
    ] = None,
) -> None:
    """Write a quantized copy of a model.

    The copy appears whole or not at all. Prints the path, or the paths of a set.
    """
    from edgeinfer.loader.resolve import resolve
    from edgeinfer.shrinking.quantize import quantize as run

    line = Line()
    try:
        result = run(
            resolve(source),
            target,
            recipe,
            max_bytes=None if max_size is None else read_size(max_size),
            max_kld=max_kld,
            text=None if file is None else read_text(file),
            dataset="" if file is None else file.name,
            chunks=chunks,
            report=report,
            tensor_types=dict(map(_tensor_type, tensor_type or ())),
            output_type=output_type,
            embedding_type=embedding_type,
            pure=pure,
            leave_output=leave_output,
            strict=strict,
            allow_requantize=allow_requantize,
            imatrix=imatrix,
            split_max_bytes=None if split_max_size is None else read_size(split_max_size),
            keep_split=keep_split,
            overwrite=force,
            dry_run=dry_run,
            n_threads=n_threads,
            progress=lambda stage, done, total: line.update(
                stage, done, total, "B" if stage == "quantizing" else ""
            ),
        )
    finally:
        line.clear()
    print_report(result, verbose=verbose)
    if not dry_run:
        for path in result.files:
            print(path)


def print_report(report: "QuantizeReport", *, verbose: bool) -> None:
    """Print what became of the tensors, then the sizes."""
    if verbose:
        for tensor in report.tensors:
            formats = f"{tensor.source_format} -> {tensor.format}"
            formats += f" for {tensor.wanted}" * tensor.is_fallback
            print(tensor_line(tensor.name, tensor.shape, formats, tensor.n_bytes))
    kinds = Counter((t.shape[-1], t.wanted, t.format) for t in report.fallbacks)
    for (n_columns, wanted, format), count in kinds.items():
        print(
            f"{format} instead of {wanted} for {count} tensors, whose rows of {n_columns} values "
            f"are no multiple of its block{'' if verbose else ' (-v names them)'}"
        )
    if any(tensor.used_importance for tensor in report.tensors):
        without = [tensor.name for tensor in report.encoded if not tensor.used_importance]
        if without:
            print(f"no importance for {len(without)} tensors: {', '.join(without)}")
    for name, (count, n_bytes) in report.bytes_by_format().items():
        print(f"{name:<7} {count:>5} tensors {amount(n_bytes, 'B'):>10}")
    print(
        f"{report.recipe}: {amount(report.source_bytes, 'B')} -> {amount(report.n_bytes, 'B')}, "
        f"{report.bits_per_weight:.2f} bits a weight"
    )
    if report.predicted_kld is not None:
        print(f"predicted kld {report.predicted_kld:.6f}")
    if report.divergence is not None:
        print("\n".join(kld_lines(report.divergence)))


def _tensor_type(text: str) -> tuple[str, str]:
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise InvalidParameterError(
            f"--tensor-type: found {text!r} (need REGEX=TYPE, such as ffn_down=Q6_K)"
        )
    return pattern, name
