"""Carry out the slash commands of a chat: one row a command, each a function of session and text.

Knows the session and says what happened; reads no keys and writes no screen.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, auto
from pathlib import Path
from typing import Any

from edgeinfer.cli import conversation
from edgeinfer.cli.chat_session import Session
from edgeinfer.cli.options import read_text
from edgeinfer.errors import InvalidParameterError

SESSION_SUFFIX = ".session"  # of files that hold keys and values, not the text alone


class Next(Enum):
    """What the chat does after a command."""

    PROMPT = auto()
    ANSWER = auto()  # the last message of the conversation is a question again
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command has to say and what follows it; `once` are settings of that answer only."""

    text: str = ""
    next: Next = Next.PROMPT
    once: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the table."""

    name: str
    argument: str
    summary: str
    run: Callable[[Session, str], Outcome]
    aliases: tuple[str, ...] = ()


def is_command(text: str) -> bool:
    """Tell a command from a message; a path such as /etc/hosts begins no command."""
    return re.match(r"/[a-z?]+(\s|$)", text) is not None


def run_command(session: Session, text: str) -> Outcome:
    """Carry out one command; an unknown one raises InvalidParameterError."""
    name, _, argument = text.partition(" ")
    for command in COMMANDS:
        if name == command.name or name in command.aliases:
            return command.run(session, argument.strip())
    close = get_close_matches(name, names(), n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    raise InvalidParameterError(
        f"{name}: no such command; {guess}/help lists them, a space before the / sends it as text"
    )


def names() -> list[str]:
    """Return every name a command answers to."""
    return [name for command in COMMANDS for name in (command.name, *command.aliases)]


def _help(session: Session, argument: str) -> Outcome:
    rows = [(f"{c.name} {c.argument}".rstrip(), c.summary) for c in COMMANDS]
    width = max(len(left) for left, _ in rows)
    lines = [f"{left:<{width}}  {right}" for left, right in rows]
    lines += [
        "",
        'Enter sends. A line ending in \\, a message between """ and """, Alt-Enter and pasted',
        "text may have several lines. Ctrl-G opens your editor, Tab completes, the arrows recall.",
        "Ctrl-C stops an answer and keeps it; at the empty prompt it leaves, as Ctrl-D does.",
    ]
    return Outcome("\n".join(lines))


def _system(session: Session, argument: str) -> Outcome:
    if not argument:
        return Outcome(session.conversation.system or "no system prompt; /system TEXT sets one")
    if argument in ('""', "''"):
        session.conversation.system = None
        return Outcome("system prompt removed")
    session.conversation.system = argument
    return Outcome("system prompt set; it holds from the next answer on")


def _set(session: Session, argument: str) -> Outcome:
    if not argument:
        return Outcome("\n".join(_settings_lines(session)))
    name, value = [*argument.replace("=", " ", 1).split(None, 1), ""][:2]
    if not value:
        raise InvalidParameterError(
            f"/set {name}: no value (/set NAME VALUE; 'default' as value goes back)"
        )
    return Outcome(session.set(name, value))


def _settings_lines(session: Session) -> Iterator[str]:
    for name, value in session.settings.items():
        yield f"{name} = {value}"
    recommended = session.model_defaults()
    for name, value in recommended.items():
        if name not in session.settings:
            yield f"{name} = {value}, recommended for this model"
    if not session.settings and not recommended:
        yield "everything is at its default"
    yield f"/set NAME VALUE takes: {', '.join(session.setting_names())}"


def _clear(session: Session, argument: str) -> Outcome:
    session.conversation.clear()
    return Outcome("conversation cleared")


def _undo(session: Session, argument: str) -> Outcome:
    if not session.conversation.undo():
        raise InvalidParameterError("/undo: there is nothing to take back")
    return Outcome("last question and its answer removed")


def _retry(session: Session, argument: str) -> Outcome:
    once: dict[str, Any] = {}
    if argument:
        once["temperature"] = session.parse("temperature", argument)
    if not session.conversation.take_back_answer():
        raise InvalidParameterError("/retry: there is no answer to replace")
    note = ""
    if session.is_greedy() and not once.get("temperature"):
        note = "temperature 0 answers the same again; /retry 0.8 tries another way"
    return Outcome(note, next=Next.ANSWER, once=once | session.another_try())


def _read(session: Session, argument: str) -> Outcome:
    if not argument:
        raise InvalidParameterError("/read: no FILE")
    path = _path(argument)
    text = read_text(path)
    session.conversation.pending.append(text)
    n_tokens = session.count(text)
    return Outcome(f"{path.name}: {n_tokens:,} tokens go before your next message")


def _save(session: Session, argument: str) -> Outcome:
    if not argument:
        raise InvalidParameterError("/save: no FILE")
    path = _path(argument)
    n_messages = len(session.conversation.turns)
    if path.suffix == SESSION_SUFFIX:
        n_tokens = session.keep(path)
        return Outcome(f"saved {n_messages} messages and the state of {n_tokens:,} tokens")
    conversation.save(session.conversation, path, session.settings)
    return Outcome(f"saved {n_messages} messages to {argument}")


def _load(session: Session, argument: str) -> Outcome:
    if not argument:
        raise InvalidParameterError("/load: no FILE")
    path = _path(argument)
    if path.suffix == SESSION_SUFFIX:
        n_tokens = session.restore(path)
        n_messages = len(session.conversation.turns)
        return Outcome(f"loaded {n_messages} messages; {n_tokens:,} tokens need no reading")
    loaded, settings = conversation.load(path)
    session.replace_settings(settings)
    session.conversation = loaded
    return Outcome(f"loaded {len(loaded.turns)} messages from {argument}")


def _tokens(session: Session, argument: str) -> Outcome:
    if argument:
        pieces = session.pieces(argument)
        shown = " ".join(f"{id}:{piece!r}" for id, piece in pieces)
        return Outcome(f"{len(pieces)} tokens: {shown}")
    used, room = session.context_use()
    return Outcome(f"{used:,} of {room:,} tokens of the context are used ({used / room:.0%})")


def _stats(session: Session, argument: str) -> Outcome:
    if argument in ("on", "off"):
        session.show_stats = argument == "on"
        return Outcome(f"speed after each answer: {argument}")
    if argument:
        raise InvalidParameterError(f"/stats: found {argument!r} (need on, off or nothing)")
    return Outcome(session.last_reply.speed_line() if session.last_reply else "no answer yet")


def _exit(session: Session, argument: str) -> Outcome:
    return Outcome(next=Next.LEAVE)


def _path(argument: str) -> Path:
    """Return the path a person typed, perhaps quoted, perhaps with ~."""
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "\"'":
        argument = argument[1:-1]
    return Path(argument).expanduser()


COMMANDS = (
    Command("/help", "", "Show this list.", _help, ("/?",)),
    Command("/system", "[TEXT]", 'Show or set the system prompt; "" removes it.', _system),
    Command("/set", "[NAME VALUE]", "Show or change how answers are made.", _set),
    Command("/clear", "", "Forget the conversation, keep the system prompt.", _clear),
    Command("/undo", "", "Take back the last question and its answer.", _undo),
    Command("/retry", "[TEMP]", "Answer the last question again.", _retry, ("/regen",)),
    Command("/read", "FILE", "Put a text file before your next message.", _read),
    Command("/save", "FILE", "Write the conversation to a file.", _save),
    Command("/load", "FILE", "Go on with a saved conversation.", _load),
    Command("/tokens", "[TEXT]", "Show how full the context is, or the tokens of TEXT.", _tokens),
    Command("/stats", "[on|off]", "Show the last answer's speed, or show it always.", _stats),
    Command("/exit", "", "Leave.", _exit, ("/quit", "/bye")),
)
