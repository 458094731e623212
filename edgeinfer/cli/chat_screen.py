"""Say what a chat needs of the place it happens in, and be that place over pipes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from edgeinfer.cli.chat_input import messages_from
from edgeinfer.cli.progress import Line

# A model may write any character; on a terminal only text, newlines and tabs may act.
VISIBLE = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}


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
        self._prompts = sys.stdin is not None and sys.stdin.isatty()
        self._shown_as: dict[int, str] = VISIBLE if sys.stdout.isatty() else {}
        self.interactive = self._prompts
        self._messages: Iterator[str] | None = None

    def read(self) -> str | None:
        if self._prompts:
            sys.stderr.write("> ")
            sys.stderr.flush()
        if self._messages is None:
            self._messages = messages_from(sys.stdin.buffer)
        return next(self._messages, None)

    def write(self, piece: str) -> None:
        sys.stdout.write(piece.translate(self._shown_as))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    def progress(self) -> Line:
        return Line()


def choose_screen(commands: list[str], *, history: Path | None, simple: bool) -> Screen:
    """Return the terminal screen where both ends are a capable terminal, else the pipe's."""
    capable = os.environ.get("TERM", "") not in ("", "dumb") or sys.platform == "win32"
    if not simple and capable and sys.stdin.isatty() and sys.stdout.isatty():
        from edgeinfer.cli.chat_terminal import TerminalScreen

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
