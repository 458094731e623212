"""Read messages from a person at a terminal, with line editing, and show answers harmlessly."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from edgeinfer.cli.chat_input import is_complete, unfold
from edgeinfer.cli.chat_screen import VISIBLE
from edgeinfer.cli.progress import Line

TAKES_PATH = ("/read ", "/load ", "/save ")


class TerminalScreen:
    """A chat in a terminal: line editing, history, completion, several lines a message."""

    interactive = True

    def __init__(self, commands: list[str], history: Path | None) -> None:
        self._is_first = True
        self._session: PromptSession[str] = PromptSession(
            message="> ",
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_key_bindings(),
            completer=ChatCompleter(commands),
            complete_while_typing=False,
            history=open_history(history),
            enable_open_in_editor=True,
            enable_history_search=True,
        )

    def read(self) -> str | None:
        if not self._is_first:
            print()
        self._is_first = False
        try:
            return unfold(self._session.prompt())
        except EOFError:
            return None

    def write(self, piece: str) -> None:
        sys.stdout.write(piece.translate(VISIBLE))
        sys.stdout.flush()

    def note(self, text: str) -> None:
        print(text.translate(VISIBLE))

    def progress(self) -> Line:
        return Line()


class ChatCompleter(Completer):
    """Complete the names of commands, and paths after the commands that take one."""

    def __init__(self, commands: list[str]) -> None:
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        for command in TAKES_PATH:
            if typed.startswith(command):
                path = typed[len(command) :]
                yield from self._paths.get_completions(Document(path), complete_event)
        if typed.startswith("/") and " " not in typed:
            for command in self._commands:
                if command.startswith(typed):
                    yield Completion(command, start_position=-len(typed))


def open_history(path: Path | None) -> History:
    """Return a history kept in `path`, readable by its owner only; in memory if that fails."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send_or_continue(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    @keys.add("c-g")
    def _edit(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    return keys
