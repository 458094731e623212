"""`edgeinfer embed`: texts in, a vector for each out."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import ReadFlags, with_flags
from edgeinfer.cli.progress import Line
from edgeinfer.cli.texts import texts_of
from edgeinfer.errors import InvalidParameterError, ResourceError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from edgeinfer.program.program import Pooling


class Format(StrEnum):
    """How vectors are written."""

    JSONL = "jsonl"
    JSON = "json"
    NPY = "npy"


class Kind(StrEnum):
    """How the rows of a text's tokens become one."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


POOLINGS: "dict[Kind, Pooling]" = {Kind.MEAN: "mean", Kind.CLS: "cls", Kind.LAST: "last"}


@with_flags
def embed(
    model: Annotated[str, Argument(help="A .gguf file, a catalogue name, or hf:owner/repo:QUANT.")],
    texts: Annotated[list[str] | None, Argument(metavar="[TEXT]...", show_default=False)] = None,
    *,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="Texts, one a line, after those of the command; - is stdin."),
    ] = None,
    format: Annotated[
        Format, Option("--format", help="jsonl (an array a line), json (OpenAI's object), npy.")
    ] = Format.JSONL,
    output: Annotated[
        Path | None, Option("--output", "-o", help="The file to write; npy needs one.")
    ] = None,
    pooling: Annotated[
        Kind | None,
        Option("--pooling", help="How a model pools (default: as the file says, else mean)."),
    ] = None,
    normalize: Annotated[
        bool, Option("--normalize/--no-normalize", help="Scale vectors to length 1.")
    ] = True,
    dimensions: Annotated[
        int | None, Option("--dimensions", help="Keep so many numbers of each vector.")
    ] = None,
    truncate: Annotated[
        bool, Option("--truncate", help="Cut texts that are longer than the context.")
    ] = False,
    loading: ReadFlags,
) -> None:
    """Turn texts into vectors whose dot products say how alike they are.

    The texts are those of the command, then the lines of -f that are not empty, or of stdin where
    there is neither. A text's vector is the same whatever stands beside it. jsonl prints a line a
    text, an array of the model's width (or --dimensions); json one object, as OpenAI's interface
    answers; npy writes one float32 array, a row a text.

    \b
    edgeinfer embed MODEL "a cat" "a dog"
    edgeinfer embed MODEL -f lines.txt --format npy -o vectors.npy
    """
    if format is Format.NPY and output is None:
        raise InvalidParameterError("--format npy: found no --output (need the file to write)")
    if output is not None and not output.parent.is_dir():
        # Said before hours of reading, not behind them.
        raise ResourceError(f"{output.parent}: no such folder; make it first or choose another")
    found = texts_of(texts, file)
    kind = None if pooling is None else POOLINGS[pooling]
    with (
        load_model(model, loading, pooling=kind) as loaded,
        Line() as line,
    ):
        vectors = loaded.embed(
            found,
            normalize=normalize,
            dimensions=dimensions,
            truncate=truncate,
            progress=lambda done, total: line.update("reading", done, total, "tokens"),
        )
        n_tokens = sum(min(len(loaded.tokenize(text)), loaded.n_ctx) for text in found)
    if format is Format.NPY and output is not None:
        _save(vectors, output)
        return
    if format is Format.JSON:
        text = json.dumps(_as_object(vectors, model, n_tokens)) + "\n"
    else:
        text = "".join(json.dumps(_numbers(vector)) + "\n" for vector in vectors)
    if output is None:
        sys.stdout.write(text)
    else:
        _save(text, output)


def _as_object(vectors: "npt.NDArray[np.float32]", model: str, n_tokens: int) -> dict[str, Any]:
    """Return what OpenAI's interface answers."""
    data = [
        {"object": "embedding", "index": index, "embedding": _numbers(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _numbers(vector: "npt.NDArray[np.float32]") -> list[float]:
    """Return numbers that print with the fewest digits that tell them apart in float32."""
    return [float(text) for text in vector.astype(str)]


def _save(found: "str | npt.NDArray[np.float32]", path: Path) -> None:
    import numpy as np

    try:
        with path.open("wb") as file:
            if isinstance(found, str):
                file.write(found.encode())
            else:
                np.save(file, found)
    except OSError as error:
        raise ResourceError(f"{path}: {error.strerror or error}") from None
