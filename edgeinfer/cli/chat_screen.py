"""Read messages from a person or a pipe and write answers back. Knows no model and no commands."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgeinfer.cli.chat_input import is_complete, messages_from, unfold
from edgeinfer.cli.progress import Line

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings

# A model may write any character; on a terminal only text, newlines and tabs may act.
_HARMLESS = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))}
for _kept in "\n\t":
    del _HARMLESS[ord(_kept)]


class Screen(Protocol):
    """Where a chat happens. `interactive` tells whether a person can answer an error."""

    interactive: bool

    def read(self) -> str | None:
        """Return the next message, None at the end; KeyboardInterrupt when it is left."""

    def write(self, piece: str) -> None:
        """Show a piece of an answer at once."""

    def note(self, text: str) -> None:
        """Show a line that is not part of an answer."""

    def progress(self) -> Line:
        """Return a line for progress, to be cleared before the answer."""


class PipeScreen:
    """A chat over pipes: a message a line in, only answers out, everything else on stderr."""

    def __init__(self) -> None:
        self._prompts = sys.stdin.isatty()
        self.interactive = self._prompts
        self._messages: Iterator[str] = messages_from(sys.stdin.buffer)

    def read(self) -> str | None:
        if self._prompts:
            sys.stderr.write("> ")
            sys.stderr.flush()
        return next(self._messages, None)

    def write(self, piece: str) -> None:
        sys.stdout.write(piece)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    def progress(self) -> Line:
        return Line()


class TerminalScreen:
    """A chat in a terminal: line editing, history, completion, several lines a message."""

    interactive = True

    def __init__(self, commands: Sequence[str], history: Path | None) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession(
            message="> ",
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_key_bindings(),
            completer=_completer(commands),
            complete_while_typing=False,
            history=_history(history),
            enable_open_in_editor=True,
            enable_history_search=True,
        )

    def read(self) -> str | None:
        try:
            return unfold(self._session.prompt())
        except EOFError:
            return None

    def write(self, piece: str) -> None:
        sys.stdout.write(piece.translate(_HARMLESS))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        print(text.translate(_HARMLESS))

    def progress(self) -> Line:
        return Line()


def choose_screen(commands: Sequence[str], *, history: Path | None, simple: bool) -> Screen:
    """Return the terminal screen where both ends are a capable terminal, else the pipe's."""
    capable = os.environ.get("TERM", "") not in ("", "dumb") or sys.platform == "win32"
    if not simple and capable and sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalScreen(commands, history)
    return PipeScreen()


def history_file() -> Path:
    """Return where typed messages are remembered; it may not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        folder = Path(local) if local else Path.home() / "AppData/Local"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library/Application Support"
    else:
        # The XDG specification: a relative path there is to be ignored.
        xdg = os.environ.get("XDG_STATE_HOME", "")
        folder = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".local/state"
    return folder / "edgeinfer" / "chat_history"


def _history(path: Path | None) -> Any:
    """Return a history kept in `path`, readable by its owner only; in memory if that fails."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer(commands: Sequence[str]) -> Any:
    """Complete command names, then paths after the commands that take a file."""
    from prompt_toolkit.completion import NestedCompleter, PathCompleter

    takes_path = {"/read", "/load", "/save"}
    paths = PathCompleter(expanduser=True)
    return NestedCompleter({name: paths if name in takes_path else None for name in commands})


def _key_bindings() -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: Any) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _newline(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _interrupt(event: Any) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    @keys.add("c-g")
    def _editor(event: Any) -> None:
        event.current_buffer.open_in_editor()

    return keys
