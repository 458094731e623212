"""Write answers that are the arguments of a function down as calls of it."""

from collections.abc import Iterable, Iterator
from typing import Any

from edgeinfer.compat.llama_cpp.text_answers import Answer


def called(answer: Answer, name: str) -> Answer:
    """Return the dict of a conversation's answer as that of a call; one cut short says so."""
    (choice,) = answer["choices"]
    made = _call(answer["id"], name, choice["message"]["content"])
    message = {"role": "assistant", "content": None, **made}
    reason = _reason(choice["finish_reason"])
    return answer | {"choices": [choice | {"message": message, "finish_reason": reason}]}


def calling(pieces: Iterable[Answer], name: str) -> Iterator[Answer]:
    """Yield the pieces of a conversation's answer as those of a call."""
    for piece in pieces:
        (choice,) = piece["choices"]
        old = choice["delta"]
        delta: dict[str, Any] = {"role": old.get("role"), "content": None}
        if "content" in old:
            delta |= _call(piece["id"], name, old["content"], index=0)
        else:
            delta |= {"function_call": None, "tool_calls": None}
        reason = _reason(choice["finish_reason"])
        yield piece | {"choices": [choice | {"delta": delta, "finish_reason": reason}]}


def _call(answer_id: str, name: str, arguments: str, **at: int) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call_id = f"call__0_{name}_{answer_id.removeprefix('chat')}"
    return {
        "function_call": function,
        "tool_calls": [{**at, "id": call_id, "type": "function", "function": dict(function)}],
    }


def _reason(reason: str | None) -> str | None:
    return "tool_calls" if reason == "stop" else reason
