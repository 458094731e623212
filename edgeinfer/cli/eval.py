"""`edgeinfer eval`: how well a model predicts a text, and how far it is from another model."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import LoadFlags, read_text, with_flags
from edgeinfer.cli.progress import Line
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.evaluating import Divergence, Perplexity

N_CTX = 512


class Action(StrEnum):
    """What to measure."""

    PPL = "ppl"
    TOP1 = "top1"
    KLD = "kld"


MODELS = {
    Action.PPL: "MODEL",
    Action.TOP1: "MODEL",
    Action.KLD: "REFERENCE MODEL",
}


@with_flags
def eval(
    action: Annotated[Action, Argument(help="ppl, top1 or kld.", show_default=False)],
    models: Annotated[
        list[str], Argument(metavar="MODEL...", help="The model; kld: the reference before it.")
    ],
    *,
    file: Annotated[
        Path | None, Option("--file", "-f", help="The text to predict.", show_default=False)
    ] = None,
    chunks: Annotated[
        int | None, Option("--chunks", min=1, help="Most windows to read (default: all).")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    loading: LoadFlags,
) -> None:
    """Measure how well a model predicts a text, or what it lost against a reference.

    'ppl MODEL -f text' is the perplexity, 'top1' the share of tokens it guesses first. 'kld
    REFERENCE MODEL -f text' is how far MODEL's predictions are from REFERENCE's: KL divergence and
    its percentiles, agreement on the likeliest token, perplexity of both. The text is read in
    windows of --ctx tokens (512), whose second halves count, as llama-perplexity does it.
    """
    needed = MODELS[action].split()
    if len(models) != len(needed):
        raise InvalidParameterError(
            f"eval {action}: found {len(models)} models (need {len(needed)}: {MODELS[action]})"
        )
    text = needed_text(file)
    loading = replace(loading, n_ctx=loading.n_ctx or N_CTX)
    with load_model(models[0], loading) as first:
        line = Line()
        options: dict[str, Any] = {"n_ctx": loading.n_ctx, "chunks": chunks}
        result: Perplexity | Divergence
        try:
            if action is Action.KLD:
                from edgeinfer.evaluating import divergence

                with load_model(models[1], loading) as second:
                    options["progress"] = shown(line, "kld")
                    result = divergence(first, second, text, **options)
            else:
                from edgeinfer.evaluating import perplexity

                options["progress"] = shown(line, "ppl")
                result = perplexity(first, text, **options)
        finally:
            line.clear()
    if as_json:
        print(json.dumps({"models": models, "action": action, **asdict(result)}, indent=1))
    else:
        print("\n".join(LINES[action](result)))


def needed_text(file: Path | None) -> str:
    """Return the text of -f, which there is no default for."""
    if file is None:
        raise InvalidParameterError(
            "no text (need -f FILE: any UTF-8 text of some thousand words that is like what the "
            "model is used for; wikitext-2's wiki.test.raw makes figures comparable)"
        )
    return read_text(file)


def shown(line: Line, name: str) -> Callable[[int, int, float], None]:
    """Return the progress that shows the value so far."""
    return lambda n_done, n_total, value: line.update(
        f"{name} {value:.4f}", n_done, n_total, "windows"
    )


def ppl_lines(result: "Perplexity") -> list[str]:
    """Return perplexity as a person reads it."""
    return [f"ppl   {result.ppl}", f"nll   {result.nll}", f"top1  {result.top1}", over(result)]


def top1_lines(result: "Perplexity") -> list[str]:
    """Return the share of right first guesses as a person reads it."""
    return [f"top1  {result.top1}", over(result)]


def kld_lines(result: "Divergence") -> list[str]:
    """Return the divergence as a person reads it."""
    rows = [
        ("kld", f"{result.kld.value:.6f} ± {result.kld.error:.6f}"),
        ("  median", f"{result.median:.6f}"),
        ("  90 %", f"{result.p90:.6f}"),
        ("  99 %", f"{result.p99:.6f}"),
        ("  99.9 %", f"{result.p999:.6f}"),
        ("  most", f"{result.max:.6f}"),
        ("same top 1", f"{result.top1_agreement}"),
        ("rms of dp", f"{result.rms_dp}"),
        ("mean of dp", f"{result.dp}"),
        ("ppl", f"{result.ppl}"),
        ("ppl, reference", f"{result.ppl_reference}"),
        ("ln of their ratio", f"{result.ln_ppl_ratio}"),
    ]
    return [f"{name:<18}{value}" for name, value in rows] + [over(result)]


def over(result: "Perplexity | Divergence") -> str:
    """Say what was measured on."""
    return f"over {result.n_tokens} tokens in {result.n_chunks} windows of {result.n_ctx}"


LINES: dict[Action, Callable[[Any], list[str]]] = {
    Action.PPL: ppl_lines,
    Action.TOP1: top1_lines,
    Action.KLD: kld_lines,
}
