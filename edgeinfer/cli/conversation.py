"""Keep what was said: messages in order, undone, saved and loaded. Knows no model and no screen."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeinfer.cli.options import read_text
from edgeinfer.errors import InvalidParameterError, ResourceError

FORMAT = "edgeinfer-chat"

Message = dict[str, str]


@dataclass(slots=True)
class Conversation:
    """A system prompt and the turns after it, ending with an answer whenever it is at rest."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)  # texts of files for the next message

    def messages(self) -> list[Message]:
        """Return all messages as a chat template takes them."""
        head = [] if self.system is None else [{"role": "system", "content": self.system}]
        return head + self.turns

    def ask(self, text: str) -> None:
        """Add the user's message, with the files that were read for it before it."""
        self.turns.append({"role": "user", "content": "\n\n".join([*self.pending, text])})
        self.pending.clear()

    def answer(self, text: str) -> None:
        """Add the model's message."""
        self.turns.append({"role": "assistant", "content": text})

    def take_back_answer(self) -> bool:
        """Remove the last answer, so that its question stands open; False if there is none."""
        if len(self.turns) < 2 or self.turns[-1]["role"] != "assistant":
            return False
        self.turns.pop()
        return True

    def undo(self) -> bool:
        """Remove the last question with all that followed it; False if there is none."""
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index]["role"] == "user":
                del self.turns[index:]
                return True
        return False

    def clear(self) -> None:
        """Forget the turns; the system prompt stays."""
        self.turns.clear()
        self.pending.clear()


def from_messages(messages: Sequence[Mapping[str, Any]], where: str) -> Conversation:
    """Return the conversation that consists of these messages.

    Raises InvalidParameterError, which begins with `where`, if one is not a text of the system at
    their beginning, of the user or of the assistant.
    """
    system, turns = None, list(messages)
    if turns and turns[0].get("role") == "system" and isinstance(turns[0].get("content"), str):
        system = turns.pop(0)["content"]
    first = len(messages) - len(turns)
    checked = [_message(turn, f"{where}: messages[{i}]") for i, turn in enumerate(turns, first)]
    return Conversation(system, checked)


def save(conversation: Conversation, path: Path, settings: dict[str, Any]) -> None:
    """Write a conversation as JSON; the file appears whole or not at all.

    An existing file is replaced only when it holds a saved conversation itself.
    Raises InvalidParameterError (exists, no such folder), ResourceError (cannot be written).
    """
    if path.exists() and not _is_saved_chat(path):
        raise InvalidParameterError(
            f"{path}: exists and is no saved conversation (choose another name)"
        )
    if not path.parent.is_dir():
        raise InvalidParameterError(f"{path.parent}: no such folder")
    content = {
        "format": FORMAT,
        "version": 1,
        "system": conversation.system,
        "turns": conversation.turns,
        "settings": settings,
    }
    part = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with part.open("x", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ResourceError(f"{path}: cannot be written: {error.strerror}") from error


def load(path: Path) -> tuple[Conversation, dict[str, Any]]:
    """Read a saved conversation and its settings; raises InvalidParameterError if it is none."""
    content = _read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidParameterError(f"{path}: is no saved conversation (/save writes them)")
    if content.get("version") != 1:
        raise InvalidParameterError(
            f"{path}: version: found {content.get('version')!r} (this edgeinfer reads 1)"
        )
    system, turns, settings = (content.get(key) for key in ("system", "turns", "settings"))
    if system is not None and not isinstance(system, str):
        raise InvalidParameterError(f"{path}: system: found {system!r} (need a text or null)")
    if not isinstance(turns, list):
        raise InvalidParameterError(f"{path}: turns: need a list of messages")
    checked = [_message(turn, f"{path}: turns[{index}]") for index, turn in enumerate(turns)]
    if not isinstance(settings, dict):
        raise InvalidParameterError(f"{path}: settings: need an object")
    return Conversation(system, checked), settings


def _message(turn: Any, where: str) -> Message:
    if not isinstance(turn, Mapping):
        raise InvalidParameterError(f"{where}: need an object with role and content")
    role, content = turn.get("role"), turn.get("content")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise InvalidParameterError(
            f"{where}: found role {role!r} (need user or assistant, and content as text)"
        )
    return {"role": role, "content": content}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(f"{path}: is not JSON: {error}") from error


def _is_saved_chat(path: Path) -> bool:
    try:
        load(path)
    except InvalidParameterError:
        return False
    return True
