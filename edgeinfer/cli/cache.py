"""`edgeinfer cache`: keep what a model has read of a beginning that many prompts share."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import (
    LoadFlags,
    ModelArgument,
    ModelOption,
    choose_model,
    read_text,
    with_flags,
)
from edgeinfer.cli.progress import amount
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.loader.prefixes import Kept


class Action(StrEnum):
    """What to do with the prefix files."""

    BUILD = "build"
    LIST = "list"
    CLEAR = "clear"


@with_flags
def cache(
    action: Annotated[Action, Argument(help="build, list or clear.", show_default=False)],
    model: ModelArgument = None,
    model_option: ModelOption = None,
    *,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="build: the text; what the system says in a conversation."),
    ] = None,
    plain: Annotated[
        bool, Option("--plain", help="build: the text as it is, for 'run', without a template.")
    ] = False,
    max_bytes: Annotated[
        int | None,
        Option(
            "--max-bytes",
            help="What all files may take (default: EDGEINFER_PREFIX_MAX_BYTES, else 4 GiB).",
        ),
    ] = None,
    loading: LoadFlags,
) -> None:
    """Keep what a model has read of a text, so that prompts which begin with it start behind it.

    'build MODEL -f system.txt' reads the text once and prints the path of its prefix file. Every
    process that loads the model from then on takes it from there. The loading options must be
    those the model is used with. 'list' shows the files, of MODEL if it is given, 'clear' removes
    them.
    """
    if max_bytes is not None and max_bytes < 0:
        raise InvalidParameterError(f"--max-bytes: found {max_bytes} (need 0 or more)")
    if action is not Action.BUILD:
        name = model or model_option
        (print_prefixes if action is Action.LIST else clear_prefixes)(name)
        return
    if file is None:
        raise InvalidParameterError("no text (need -f FILE, such as 'build MODEL -f system.txt')")
    text = read_text(file)
    with load_model(choose_model(model, model_option), loading) as loaded:
        prefix = text if plain else [{"role": "system", "content": text}]
        print(loaded.keep_prefix(prefix, most_bytes=max_bytes))


def print_prefixes(model: str | None) -> None:
    """Print each file: its size, when it was used, its tokens, its model."""
    from edgeinfer.loader.prefixes import TIER

    found = files_of(model)
    for kept in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.used_s))
        about = "damaged"
        if kept.header is not None:
            about = f"{kept.header.n_stored:>6} tokens  {kept.header.source}"
        print(f"{amount(kept.n_bytes, 'B'):>9}  {used}  {about}")
    total = sum(kept.n_bytes for kept in found)
    print(f"{amount(total, 'B'):>9}  of {amount(TIER.max_bytes(), 'B')} in {TIER.folder}")


def clear_prefixes(model: str | None) -> None:
    """Remove the files, damaged ones too."""
    from edgeinfer.loader.tier import remove_file

    for kept in files_of(model):
        remove_file(kept.path)
        print(f"removed {kept.path}")


def files_of(model: str | None) -> "list[Kept]":
    """List the prefix files that were made from a model; all, if none is named."""
    from edgeinfer.loader.mapped import display
    from edgeinfer.loader.prefixes import kept
    from edgeinfer.loader.resolve import resolve

    if model is None:
        return kept()
    source = display(resolve(model).absolute())
    return [file for file in kept() if file.header is None or file.header.source == source]
