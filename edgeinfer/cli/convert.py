"""`edgeinfer convert`: a folder of transformers or PEFT in, a GGUF file out."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edgeinfer.cli.options import read_size
from edgeinfer.cli.progress import Line, amount
from edgeinfer.cli.tensors import tensor_line

if TYPE_CHECKING:
    from edgeinfer.convert import Conversion


class OutType(StrEnum):
    """Formats of the matrices."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    AUTO = "auto"


def convert(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="A model's folder, with config.json and safetensors.")
    ],
    outfile: Annotated[
        Path | None, Option("--outfile", "-o", help="The file to write (DIR/NAME-TYPE.gguf).")
    ] = None,
    outtype: Annotated[
        OutType, Option("--outtype", help="The format of matrices; auto is the checkpoint's.")
    ] = OutType.AUTO,
    split_max_size: Annotated[
        str | None,
        Option(
            "--split-max-size",
            metavar="SIZE",
            help="Write a set of files whose tensors take at most this each, such as 2G.",
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        Option("--metadata", help="A JSON object of keys general.* to add or replace."),
    ] = None,
    model_name: Annotated[
        str | None, Option("--model-name", help="The name the file gives the model.")
    ] = None,
    base: Annotated[
        Path | None,
        Option("--base", metavar="DIR", help="The model's folder, if DIR is an adapter of PEFT."),
    ] = None,
    vocab_only: Annotated[
        bool, Option("--vocab-only", help="Write the tokenizer, no weights.")
    ] = False,
    force: Annotated[bool, Option("--force", "-f", help="Replace a file that is there.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print sizes, write nothing.")] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Print a line for each tensor.")
    ] = False,
    n_threads: Annotated[
        int | None,
        Option("--threads", "-t", min=1, help="Threads (default: all CPUs allowed here)."),
    ] = None,
) -> None:
    """Write a model of transformers, or a LoRA adapter of PEFT, as a GGUF file.

    The file appears whole or not at all; no code of the folder is run, and no pickle is read.
    Prints the path, or the paths of a set.
    """
    from edgeinfer.convert import convert as run
    from edgeinfer.convert.strict_json import read_object

    given: dict[str, object] = dict(read_object(metadata)) if metadata else {}
    if model_name is not None:
        given["general.name"] = model_name
    line = Line()
    try:
        result = run(
            folder,
            outfile,
            outtype=outtype.value,
            base=base,
            vocab_only=vocab_only,
            metadata=given,
            split_max_bytes=None if split_max_size is None else read_size(split_max_size),
            overwrite=force,
            dry_run=dry_run,
            n_threads=n_threads,
            progress=lambda done, total: line.update("converting", done, total, "B"),
        )
    finally:
        line.clear()
    print_result(result, verbose=verbose)
    if not dry_run:
        for path in result.files:
            print(path)


def print_result(result: "Conversion", *, verbose: bool) -> None:
    """Print what became of the tensors, then the size."""
    if verbose:
        for tensor in result.tensors:
            print(tensor_line(tensor.name, tensor.shape, tensor.format.name, tensor.n_bytes))
    if result.fallbacks:
        names = ", ".join(result.fallbacks) if verbose else "-v names them"
        count = len(result.fallbacks)
        print(
            f"F16 instead of {result.outtype} for {count} tensors, whose rows are no multiple of "
            f"its block ({names})"
        )
    print(
        f"{result.arch}, {result.outtype}: {len(result.tensors)} tensors, "
        f"{amount(result.n_bytes, 'B')}"
    )
