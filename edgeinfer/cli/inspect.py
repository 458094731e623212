"""`edgeinfer inspect`: a GGUF file in, its metadata, tensors and program out. Reads no weights."""

import json
from collections.abc import Iterator
from math import isfinite, prod
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgeinfer.cli.options import ModelArgument, ModelOption, choose_model
from edgeinfer.cli.progress import DownloadProgress, amount

if TYPE_CHECKING:
    from edgeinfer.loader.gguf import GgufFile
    from edgeinfer.loader.metadata import Metadata

SHOWN_ITEMS = 6
SHOWN_CHARS = 72


def inspect(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    program: Annotated[
        bool, Option("--program", help="Print the program the file compiles to, and only that.")
    ] = False,
    n_ctx: Annotated[
        int | None, Option("--ctx-size", "-c", help="Context length of the printed program.")
    ] = None,
    full: Annotated[bool, Option("--full", help="Shorten no text and no array.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a GGUF file holds: metadata, tensors, bytes per type."""
    from edgeinfer.loader.gguf import open_gguf
    from edgeinfer.loader.resolve import resolve

    with DownloadProgress() as progress:
        path = resolve(choose_model(model, model_option), progress=progress)
    with open_gguf(path) as file:
        if program:
            print(program_text(file, n_ctx), end="")
        elif as_json:
            print(json.dumps(as_object(file, full=full), ensure_ascii=False, indent=1))
        else:
            for line in lines(file, full=full):
                print(line)


def program_text(file: "GgufFile", n_ctx: int | None) -> str:
    """Return the program of a model file as text."""
    from edgeinfer.arch import build_program

    if n_ctx is None:
        n_ctx = file.metadata.integer(".context_length", least=1)
    return build_program(file.metadata, file.tensors, n_ctx=n_ctx).print()


def lines(file: "GgufFile", *, full: bool) -> Iterator[str]:
    """Yield the report a person reads."""
    n_parts = len(file.parts)
    parts = f", {n_parts} parts" if n_parts > 1 else ""
    yield name_of(str(file.path))
    yield (
        f"GGUF version {file.version}, {amount(file.n_bytes, 'B')}{parts}, "
        f"alignment {file.alignment}, {len(file.metadata)} keys, {len(file.tensors)} tensors"
    )
    for warning in file.warnings:
        yield f"warning: {name_of(str(warning))}"
    yield from report_lines(file.metadata)
    yield ""
    width = max((len(key) for key in file.metadata), default=0)
    for key in file.metadata:
        kind = file.metadata.type_name(key)
        yield f"{name_of(key):<{width}}  {kind:<12} {show(file.metadata[key], full=full)}"
    yield ""
    width = max((len(name) for name in file.tensors), default=0)
    for name, tensor in file.tensors.items():
        shape = " x ".join(f"{n}" for n in tensor.shape)
        n_bytes = tensor.data.size
        yield f"{name_of(name):<{width}}  {tensor.format.name:<8} {shape:>18}  {n_bytes:>13,} B"
    yield ""
    totals = totals_by_format(file)
    for total in totals:
        yield (
            f"{total['format']:<8} {total['tensors']:>5} tensors "
            f"{total['parameters']:>15,} parameters {total['bytes']:>15,} B"
        )
    n_parameters = sum(total["parameters"] for total in totals)
    n_bytes = sum(total["bytes"] for total in totals)
    bits = 8 * n_bytes / n_parameters if n_parameters else 0.0
    yield (
        f"{'all':<8} {len(file.tensors):>5} tensors {n_parameters:>15,} parameters "
        f"{n_bytes:>15,} B  ({bits:.2f} bits a parameter)"
    )


def report_lines(metadata: "Metadata") -> Iterator[str]:
    """Yield what 'quantize --report' wrote, if it did: a file may put anything under its keys."""
    from edgeinfer.writer.entries import REPORT

    def found(name: str) -> str:
        value = metadata.get(REPORT + name, "?")
        if isinstance(value, float):
            return f"{value:.6g}"
        return name_of(str(value)) if isinstance(value, str | int) else "?"

    if not any(key.startswith(REPORT) for key in metadata):
        return
    windows = "window" if found("n_chunks") == "1" else "windows"
    yield (
        f"{found('recipe')}, measured against {found('reference')} on {found('dataset')}: "
        f"{found('n_tokens')} tokens in {found('n_chunks')} {windows} of {found('n_ctx')}"
    )
    yield f"  text        sha256 {found('text_sha256')}"
    for label, name in (("kld", "kld"), ("same top 1", "top1_agreement"), ("ppl", "ppl")):
        yield f"  {label:<10}  {found(name)} ± {found(name + '_error')}"
    yield f"  {'its source':<10}  {found('ppl_reference')} ± {found('ppl_reference_error')}"


def as_object(file: "GgufFile", *, full: bool) -> dict[str, Any]:
    """Return the report as JSON can hold it; arrays are shortened unless `full`."""
    return {
        "path": str(file.path),
        "version": file.version,
        "alignment": file.alignment,
        "bytes": file.n_bytes,
        "parts": [str(part.path) for part in file.parts],
        "warnings": [str(warning) for warning in file.warnings],
        "metadata": {key: _json_value(file.metadata, key, full) for key in file.metadata},
        "tensors": [
            {
                "name": name,
                "format": tensor.format.name,
                "shape": list(tensor.shape),
                "bytes": int(tensor.data.size),
            }
            for name, tensor in file.tensors.items()
        ],
        "totals": totals_by_format(file),
    }


def totals_by_format(file: "GgufFile") -> list[dict[str, Any]]:
    """Return tensors, parameters and bytes per format, most bytes first."""
    totals: dict[str, dict[str, Any]] = {}
    for tensor in file.tensors.values():
        total = totals.setdefault(
            tensor.format.name,
            {"format": tensor.format.name, "tensors": 0, "parameters": 0, "bytes": 0},
        )
        total["tensors"] += 1
        total["parameters"] += prod(tensor.shape)
        total["bytes"] += int(tensor.data.size)
    return sorted(totals.values(), key=lambda total: -total["bytes"])


def name_of(text: str) -> str:
    """Return a name as a line can hold it: a file may put any character into one."""
    return text if text.isprintable() else repr(text)


def show(value: Any, *, full: bool) -> str:
    """Return a metadata value on one line; long texts and arrays end with their length."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str):
        if full or len(value) <= SHOWN_CHARS:
            return repr(value)
        return f"{value[:SHOWN_CHARS]!r}... ({len(value):,} characters)"
    n_items = len(value)
    n_shown = n_items if full else min(n_items, SHOWN_ITEMS)
    shown = ", ".join(show(_plain(value[index]), full=full) for index in range(n_shown))
    return f"[{shown}]" if n_shown == n_items else f"[{shown}, ...] ({n_items:,} items)"


def _json_value(metadata: "Metadata", key: str, full: bool) -> Any:
    value = metadata[key]
    if isinstance(value, bool | int | float | str):
        return _json_number(value)
    n_items = len(value)
    n_shown = n_items if full else min(n_items, SHOWN_ITEMS)
    items = [_json_number(_plain(value[index])) for index in range(n_shown)]
    return items if n_shown == n_items else {"items": n_items, "first": items}


def _json_number(value: Any) -> Any:
    """Return NaN and infinity as text, which JSON cannot write as numbers."""
    return value if not isinstance(value, float) or isfinite(value) else str(value)


def _plain(item: Any) -> Any:
    """Return a NumPy number as Python's own."""
    return item.item() if hasattr(item, "item") else item
