"""Find the command a command line names. Knows the commands' names and summaries; imports a
command's module only when that command runs, so that `edgeinfer --help` loads nothing heavy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from edgeinfer.errors import InvalidParameterError

COMMANDS = {
    "chat": "Talk with a model in the terminal.",
    "run": "Complete one prompt and print the text.",
    "embed": "Turn texts into vectors.",
    "rank": "Order documents by how well they answer a query.",
    "pull": "Download a model and print the path of its file.",
    "convert": "Make a GGUF file of a folder of transformers.",
    "quantize": "Write a smaller copy of a model.",
    "pack": "Keep a model's weights laid out, so that it loads at once.",
    "cache": "Keep what models read of a prompt's beginning, for all processes.",
    "plan": "Say whether a model fits this machine, and how fast it could be.",
    "inspect": "Show what a GGUF file holds.",
    "eval": "Measure how well a model predicts, and what a smaller one lost.",
    "compare": "Put two files of one model side by side.",
    "imatrix": "Find out which weights matter, for quantizing.",
    "bench": "Measure the speed of a model on this machine.",
    "doctor": "Check this installation and this machine.",
}


@dataclass(slots=True)
class Switches:
    """What the whole command line decides, whichever command runs."""

    debug: bool = False


class SectionedCommand(TyperCommand):
    """A command whose help groups its options by their help panel, and whose errors name them."""

    def invoke(self, ctx: Any) -> Any:
        from edgeinfer.cli.ranges import check_most

        check_most(ctx.params, self.params)
        try:
            return super().invoke(ctx)
        except InvalidParameterError as error:
            from edgeinfer.cli.wording import in_flags

            error.args = (in_flags(str(error), self.params),)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                titles = {"argument": "Arguments", "option": "Options"}
                title = getattr(param, "rich_help_panel", None) or titles[param.param_type_name]
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class LazyGroup(TyperGroup):
    """The commands of COMMANDS, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            import_module("edgeinfer.cli.logs").show_warnings()
            function = getattr(import_module(f"edgeinfer.cli.{cmd_name}"), cmd_name)
            self.commands[cmd_name] = build_command(cmd_name, function)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = get_close_matches(name, COMMANDS, n=1)
            if close:
                way_out = f"did you mean {close[0]!r}?"
            elif name.endswith(".gguf") or name.startswith("hf:"):
                way_out = f"did you mean 'edgeinfer chat {name}'?"
            else:
                way_out = f"choose from {', '.join(COMMANDS)}"
            ctx.fail(f"no such command {name!r}; {way_out}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def build_command(name: str, function: Callable[..., None]) -> Any:
    """Return the command that parses `function`'s flags and then calls it."""
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name, cls=SectionedCommand, help=function.__doc__)(function)
    command = typer.main.get_command(single)
    command.params.append(_debug_option())
    return command


def _debug_option() -> TyperOption:
    def remember(ctx: Any, param: Any, value: bool) -> None:
        if value:
            ctx.ensure_object(Switches).debug = True
            import_module("edgeinfer.cli.logs").show_all()

    return TyperOption(
        param_decls=["--debug"],
        is_flag=True,
        default=False,
        expose_value=False,
        callback=remember,
        help="Show the Python traceback of an error.",
    )


def _show_version(value: bool) -> None:
    if value:
        from edgeinfer import __version__

        typer.echo(f"edgeinfer {__version__}")
        raise typer.Exit()


def _root(
    ctx: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Run quantized GGUF language models on the CPU of this machine.

    A model is a path to a .gguf file, a catalogue name such as smollm2, or hf:owner/repo:QUANT.
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def root_command() -> Any:
    """Return the `edgeinfer` command with all its subcommands."""
    app = typer.Typer(
        cls=LazyGroup, rich_markup_mode=None, add_completion=False, invoke_without_command=True
    )
    app.callback()(_root)
    command = typer.main.get_command(app)
    command.params.append(_debug_option())
    return command
