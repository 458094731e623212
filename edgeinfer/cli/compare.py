"""`edgeinfer compare`: two files of one model side by side, what each takes and what it loses."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edgeinfer.cli.eval_actions import in_windows, predictor, shown
from edgeinfer.cli.eval_report import json_of
from edgeinfer.cli.options import LoadFlags, read_text, with_flags
from edgeinfer.cli.progress import DownloadProgress, Line, amount

if TYPE_CHECKING:
    from edgeinfer.evaluating import Divergence
    from edgeinfer.evaluating.facts import FileFacts
    from edgeinfer.evaluating.speed import Speed

Row = tuple[str, str, str]


@with_flags
def compare(
    reference: Annotated[
        str, Argument(metavar="REFERENCE", help="The model that counts as right.")
    ],
    model: Annotated[str, Argument(metavar="MODEL", help="The model to compare with it.")],
    *,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="A text to predict; without it, sizes and speed only."),
    ] = None,
    chunks: Annotated[
        int | None, Option("--chunks", min=1, help="Most windows to read (default: all).")
    ] = None,
    speed: Annotated[bool, Option("--speed/--no-speed", help="Measure the speed here.")] = True,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    loading: LoadFlags,
) -> None:
    """Put two files of one model side by side: sizes, formats, quality on a text, speed here.

    With '-f text', the table says how far MODEL's predictions are from REFERENCE's, as 'eval kld'
    measures it. The speeds are those of a prompt of 128 tokens and an answer of 32, by turns.
    """
    from edgeinfer.evaluating.facts import facts_of
    from edgeinfer.loader.resolve import resolve

    text = None if file is None else read_text(file)
    names = (reference, model)
    with DownloadProgress() as progress:
        facts = [facts_of(resolve(name, progress=progress)) for name in names]
    found: Divergence | None = None
    rates: tuple[Speed, Speed] | None = None
    if text is not None or speed:
        found, rates = measured(names, in_windows(loading), text, chunks, speed=speed)
    if as_json:
        made = {
            "files": [asdict(one) for one in facts],
            "divergence": asdict(found) if found else None,
            "speed": [asdict(rate) for rate in rates] if rates else None,
        }
        print(json_of(made))
        return
    rows = [*file_rows(*facts), *quality_rows(found), *speed_rows(rates)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def measured(
    names: tuple[str, str], loading: LoadFlags, text: str | None, chunks: int | None, *, speed: bool
) -> "tuple[Divergence | None, tuple[Speed, Speed] | None]":
    """Load both models and measure what is asked for."""
    from edgeinfer.evaluating import divergence
    from edgeinfer.evaluating.speed import speeds

    line = Line()
    found, rates = None, None
    with predictor(names[0], loading) as first, predictor(names[1], loading) as second, line:
        if text is not None:
            found = divergence(
                first,
                second,
                text,
                n_ctx=loading.n_ctx,
                chunks=chunks,
                progress=shown(line, "kld"),
            )
        if speed:
            rates = speeds(
                (first, second), progress=lambda n, of: line.update("speed", n, of, "rounds")
            )
    return found, rates


def file_rows(one: "FileFacts", other: "FileFacts") -> Iterator[Row]:
    """Yield what the headers say."""
    yield "", one.name, other.name
    yield "size", amount(one.n_bytes, "B"), amount(other.n_bytes, "B")
    yield "bits a weight", f"{one.bits_per_weight:.2f}", f"{other.bits_per_weight:.2f}"
    for kind in dict.fromkeys((*one.formats, *other.formats)):
        yield (
            f"  {kind}",
            _formats(one.formats.get(kind, {})),
            _formats(other.formats.get(kind, {})),
        )


def _formats(counts: dict[str, int]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "-"


def quality_rows(found: "Divergence | None") -> Iterator[Row]:
    """Yield what was measured on the text."""
    if found is None:
        return
    yield "ppl", str(found.ppl_reference), str(found.ppl)
    yield "ln of their ratio", "", str(found.ln_ppl_ratio)
    yield "kld", "", f"{found.kld.value:.6f} ± {found.kld.error:.6f}"
    yield "  median, 99 %", "", f"{found.median:.6f}, {found.p99:.6f}"
    yield "same top 1", "", str(found.top1_agreement)
    yield "rms of dp", "", str(found.rms_dp)


def speed_rows(rates: "tuple[Speed, Speed] | None") -> Iterator[Row]:
    """Yield the speeds here."""
    if rates is None:
        return
    one, other = rates
    yield "prompt, tokens/s", f"{one.prompt:.1f}", f"{other.prompt:.1f}"
    yield "answer, tokens/s", f"{one.answer:.1f}", f"{other.answer:.1f}"
