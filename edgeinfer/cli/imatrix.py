"""`edgeinfer imatrix`: find out on a text how much each column of a model's matrices counts."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgeinfer.cli.eval_actions import N_CTX, needed_text
from edgeinfer.cli.options import ModelArgument, ModelOption, choose_model
from edgeinfer.cli.progress import DownloadProgress, Line
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeinfer.evaluating.importance import Observer
    from edgeinfer.evaluating.windows import Windows
    from edgeinfer.quant.imatrix import Imatrix

MOST_UNWRITTEN_S = 20  # of work, that Ctrl-C may lose


def imatrix(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    *,
    file: Annotated[
        Path | None, Option("--file", "-f", help="The text to read.", show_default=False)
    ] = None,
    output: Annotated[
        Path, Option("--output", "-o", help="The file to write.", show_default=True)
    ] = Path("imatrix.gguf"),
    n_ctx: Annotated[int, Option("--ctx-size", "--ctx", "-c", help="Tokens of a window.")] = N_CTX,
    chunks: Annotated[
        int | None, Option("--chunks", min=1, help="Most windows to read (default: all).")
    ] = None,
    frequency: Annotated[
        int,
        Option("--output-frequency", min=1, help="Write the file every so many windows, or 20 s."),
    ] = 10,
    process_output: Annotated[
        bool, Option("--process-output", help="Sum the inputs of the output matrix too.")
    ] = False,
    in_files: Annotated[
        list[Path] | None,
        Option("--in-file", help="Add what this importance matrix saw; repeatable."),
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace an output that is there.")] = False,
    n_threads: Annotated[int, Option("--threads", "-t", help="Threads, 0 for the default.")] = 0,
    backend: Annotated[str, Option("--backend", help="auto, native or reference.")] = "auto",
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out which weights of a model matter on a text, for 'quantize --imatrix'.

    Reads the text in windows and sums the squares of what each matrix is multiplied with, experts
    apart. The file is written on the way; the same command goes on from it after Ctrl-C, of which
    20 seconds or a window may be lost. Without a model, 'imatrix --in-file A --in-file B -o C'
    merges files. They are llama.cpp's, both ways.
    """
    from edgeinfer.loader.imatrix import read_imatrix
    from edgeinfer.quant.imatrix import merged
    from edgeinfer.writer.imatrix import write_imatrix
    from edgeinfer.writer.workplace import Targets, check_targets

    targets = Targets(output.absolute().parent, (output.name,))
    others = [read_imatrix(path) for path in in_files or ()]
    if others and file is None and (model or model_option) is None:
        refuse_existing(output, force=force)
        check_targets(targets, [], overwrite=True)
        made = merged(others)
        write_imatrix(output, made)
        report(output, made, as_json=as_json)
        return
    from edgeinfer.evaluating.importance import Observer
    from edgeinfer.loader.resolve import resolve

    text = needed_text(file)
    assert file is not None
    with DownloadProgress() as progress:
        path = resolve(choose_model(model, model_option), progress=progress)
    check_targets(targets, [path, file], overwrite=True)
    options: dict[str, Any] = {
        "n_ctx": n_ctx,
        "output": process_output,
        "n_threads": n_threads,
        "backend": backend,
    }
    with Observer(path, **options) as observer:
        windows = observer.windows(text, most=chunks)
        n_done = 0 if force else resumed(observer, windows, output, may_resume=not others)
        for made in watched(observer, windows, n_done, frequency, file.name):
            write_imatrix(output, merged([*others, made]) if others else made)
    report(output, read_imatrix(output), as_json=as_json)


def resumed(observer: "Observer", windows: "Windows", output: Path, *, may_resume: bool) -> int:
    """Go on from an output that is there; return how many windows it has read.

    Raises InvalidParameterError if it is not what this command had written.
    """
    if not output.exists():
        return 0
    from edgeinfer.loader.imatrix import read_imatrix

    n_done = observer.resume(read_imatrix(output), windows) if may_resume else 0
    if n_done == 0:
        refuse_existing(output, force=False)
    print(f"{output}: {n_done} of {len(windows.ids)} windows are there", file=sys.stderr)
    return n_done


def watched(
    observer: "Observer", windows: "Windows", n_done: int, frequency: int, dataset: str
) -> "Iterator[Imatrix]":
    """Read the windows that are left; yield what is to be written, at the end and on the way."""
    n_windows, written_s = len(windows.ids), time.monotonic()
    with Line() as line:
        for index in range(n_done, n_windows):
            line.update("reading", index, n_windows, "windows")
            observer.read(windows.ids[index])
            is_due = time.monotonic() - written_s >= MOST_UNWRITTEN_S
            if is_due or (index + 1) % frequency == 0 or index + 1 == n_windows:
                yield observer.imatrix(dataset)
                written_s = time.monotonic()


def refuse_existing(output: Path, *, force: bool) -> None:
    """Raise InvalidParameterError if a file is there that may not be replaced."""
    if output.exists() and not force:
        raise InvalidParameterError(
            f"{output}: exists, and is not what this command would go on from (another model, text "
            "or option); choose another name with -o, or allow replacing it with --force"
        )


def report(output: Path, made: "Imatrix", *, as_json: bool) -> None:
    """Print what was written, and which experts no token came to."""
    n_without = sum(int((sums.counts == 0).sum()) for sums in made.sums.values())
    if as_json:
        found = {
            "file": str(output),
            "tensors": len(made.sums),
            "chunks": made.n_chunks,
            "chunk_size": made.chunk_size,
            "datasets": list(made.datasets),
            "experts_without_tokens": n_without,
        }
        print(json.dumps(found, indent=1))
        return
    print(f"{output}: {len(made.sums)} tensors over {made.n_chunks} windows of {made.chunk_size}")
    if n_without:
        print(f"no token came to {n_without} matrices of experts: a longer text is better")
