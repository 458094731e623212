"""`edgeinfer eval`: how well a model predicts a text, and how far it is from another model."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from edgeinfer.cli.eval_actions import chosen, diverged, plotted, predicted
from edgeinfer.cli.eval_report import (
    choice_lines,
    json_of,
    kld_lines,
    plot_lines,
    ppl_lines,
    top1_lines,
)
from edgeinfer.cli.options import LoadFlags, with_flags
from edgeinfer.errors import InvalidParameterError


class Action(StrEnum):
    """What to measure."""

    PPL = "ppl"
    TOP1 = "top1"
    KLD = "kld"
    CHOICE = "choice"
    PLOT = "plot"


@with_flags
def eval(
    action: Annotated[Action, Argument(help="ppl, top1, kld, choice or plot.", show_default=False)],
    models: Annotated[
        list[str],
        Argument(metavar="MODEL...", help="The model; kld and plot: the reference before it."),
    ],
    *,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="The text; choice: the tasks, JSONL.", show_default=False),
    ] = None,
    chunks: Annotated[
        int | None,
        Option("--chunks", min=1, help="Most windows, or tasks, to read (default: all)."),
    ] = None,
    save_logits: Annotated[
        Path | None,
        Option("--save-logits", help="kld: keep the reference's predictions in this file."),
    ] = None,
    logits: Annotated[
        Path | None,
        Option("--logits", help="kld: such a file, in place of the reference and the text."),
    ] = None,
    output: Annotated[Path, Option("--output", "-o", help="plot: the PNG to write.")] = Path(
        "kld.png"
    ),
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    loading: LoadFlags,
) -> None:
    """Measure how well a model predicts a text, or what it lost against a reference.

    'ppl MODEL -f text' is the perplexity, 'top1' the share of tokens it guesses first. 'kld
    REFERENCE MODEL -f text' is how far MODEL's predictions are from REFERENCE's: KL divergence and
    its percentiles, agreement on the likeliest token, perplexity of both. 'plot REFERENCE MODEL...
    -f text' draws divergence against size. The text is read in windows of --ctx tokens (512),
    whose second halves count, as llama-perplexity does it. 'choice MODEL -f tasks.jsonl' is how
    often the model finds the right ending, as of HellaSwag, the likeliest.
    """
    check_models(action, models, has_logits=logits is not None)
    if action is not Action.KLD and (save_logits or logits):
        raise InvalidParameterError(f"--save-logits, --logits: not of {action} (need kld)")
    found: Any
    if action is Action.KLD:
        found = diverged(models, file, loading, chunks, save_to=save_logits, saved=logits)
    elif action is Action.PLOT:
        found = plotted(models, file, loading, chunks, output)
    else:
        found = (chosen if action is Action.CHOICE else predicted)(models[0], file, loading, chunks)
    if as_json:
        print(json_of({"models": models, "action": action, **asdict(found)}))
    else:
        print("\n".join(LINES[action](found)))


def check_models(action: Action, models: list[str], *, has_logits: bool) -> None:
    """Raise InvalidParameterError unless there are as many models as the action takes."""
    needed = 1 if has_logits or action not in (Action.KLD, Action.PLOT) else 2
    what = {1: "MODEL", 2: "REFERENCE MODEL"}[needed] + "..." * (action is Action.PLOT)
    if len(models) < needed or (len(models) > needed and action is not Action.PLOT):
        raise InvalidParameterError(
            f"eval {action}: found {len(models)} models (need {needed}: {what})"
        )


LINES: dict[Action, Any] = {
    Action.PPL: ppl_lines,
    Action.TOP1: top1_lines,
    Action.KLD: kld_lines,
    Action.CHOICE: choice_lines,
    Action.PLOT: plot_lines,
}
