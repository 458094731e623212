"""Check a conversation and bring it into the one form that chat templates can take.

Goes in: messages and variables as callers have them, OpenAI's shapes included. Comes out: copies
of plain data. Every fault is named by its place: `messages[2].content[0].type`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgeinfer.errors import InvalidParameterError

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
_MAX_DEPTH = 64


def normalised(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return checked copies of the messages.

    Text parts are joined, JSON arguments of tool calls become objects. A message of the assistant
    that calls a tool may lack content, which stays None; no other may.

    Raises:
        InvalidParameterError: something is missing, of the wrong type or unknown.
    """
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise _error("messages", type(messages).__name__, "a list of messages")
    if not messages:
        raise InvalidParameterError("messages: found none (need at least one)")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a deep copy of JSON-like data.

    Raises:
        InvalidParameterError: it holds anything else, or is nested more than 64 deep.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if depth == _MAX_DEPTH:
        raise InvalidParameterError(f"{where}: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _error(f"{where} key", repr(key)[:40], "a string")
        return {key: plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise _error(where, type(value).__name__, "text, numbers, lists and objects only")


def size_of(value: Any) -> int:
    """Return the characters of all text in plain data, plus a little for each item."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + 16 + size_of(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(8 + size_of(item) for item in value)
    return 8


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _error(where, type(message).__name__, "an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise _error(f"{where}.role", repr(role)[:40], f"one of {', '.join(ROLES)}")
    name = message.get("name")
    if name is not None and (not isinstance(name, str) or not name.isprintable()):
        raise _error(f"{where}.name", repr(name)[:40], "text of one line")
    out: dict[str, Any] = {
        key: plain(value, f"{where}.{key}")
        for key, value in message.items()
        if key not in ("content", "tool_calls")
    }
    if message.get("tool_calls") is not None:
        out["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    may_lack = role == "assistant" and (
        bool(out.get("tool_calls") or out.get("function_call") or out.get("reasoning_content"))
    )
    out["content"] = _content(message.get("content"), f"{where}.content", may_lack)
    return out


def _content(content: Any, where: str, may_lack: bool) -> str | None:
    if isinstance(content, str):
        return content
    if content is None:
        if may_lack:
            return None
        raise _error(where, "null", "text; only a message with tool_calls may have none")
    if not isinstance(content, (list, tuple)):
        raise _error(where, type(content).__name__, "text or a list of text parts")
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise _error(where, type(part).__name__, "an object with type and text")
    if part.get("type") != "text":
        raise _error(f"{where}.type", repr(part.get("type"))[:40], "'text'")
    text = part.get("text")
    if not isinstance(text, str):
        raise _error(f"{where}.text", type(text).__name__, "text")
    return text


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, (list, tuple)):
        raise _error(where, type(calls).__name__, "a list")
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    out = plain(call, where)
    if not isinstance(out, dict):
        raise _error(where, type(call).__name__, "an object")
    function = out.get("function", out)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _error(f"{where}.function.name", "none", "text")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return out
        if isinstance(parsed, dict):
            function["arguments"] = plain(parsed, f"{where}.function.arguments")
    return out


def with_json_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the messages with tool arguments as JSON text, which a few templates want instead.

    None if there are no arguments.
    """
    changed = False
    out = []
    for message in messages:
        calls = []
        for call in message.get("tool_calls", ()):
            function = call.get("function", call)
            if isinstance(function.get("arguments"), dict):
                changed = True
                text = json.dumps(function["arguments"], ensure_ascii=False)
                function = {**function, "arguments": text}
                call = {**call, "function": function} if "function" in call else function
            calls.append(call)
        out.append({**message, "tool_calls": calls} if calls else message)
    return out if changed else None


def _error(where: str, found: str, need: str) -> InvalidParameterError:
    return InvalidParameterError(f"{where}: found {found} (need {need})")
