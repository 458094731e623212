"""`edgeinfer rank`: documents in, their order for a query out."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import ReadFlags, with_flags
from edgeinfer.cli.progress import Line
from edgeinfer.cli.texts import texts_of


@with_flags
def rank(
    model: Annotated[
        str, Argument(help="A reranker: a .gguf file, a catalogue name, or hf:owner/repo:QUANT.")
    ],
    documents: Annotated[
        list[str] | None, Argument(metavar="[DOCUMENT]...", show_default=False)
    ] = None,
    *,
    query: Annotated[str, Option("--query", "-q", help="What is looked for.")],
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="Documents, one a line, after those given; - is stdin."),
    ] = None,
    top_n: Annotated[int | None, Option("--top-n", "-n", help="Show so many of them.")] = None,
    raw: Annotated[bool, Option("--raw", help="Show scores as the model's head has them.")] = False,
    truncate: Annotated[
        bool, Option("--truncate", help="Cut documents that are longer than the context.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    loading: ReadFlags,
) -> None:
    """Order documents by how well they answer a query, the best first, each with its score.

    The documents are those of the command, then the lines of -f that are not empty, or of stdin
    where there is neither. Prints a line a document: the score, a tab, the document.

    \b
    edgeinfer rank MODEL -q "who wrote it" "Jane Austen did." "It rained."
    grep -h . notes/*.txt | edgeinfer rank MODEL -q "opening hours" -n 3
    """
    found = texts_of(documents, file)
    with load_model(model, loading) as loaded, Line() as line:
        places = loaded.rank(
            query,
            found,
            top_n=top_n,
            raw=raw,
            truncate=truncate,
            progress=lambda done, total: line.update("reading", done, total, "tokens"),
        )
    if as_json:
        results = [{**asdict(place), "document": found[place.index]} for place in places]
        report = {"model": model, "query": query, "results": results}
        print(json.dumps(report, ensure_ascii=False))
        return
    for place in places:
        print(f"{place.score:.4f}\t{found[place.index]}")
