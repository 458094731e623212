"""The chat format `chatml-function-calling`: functions in the system message, calls by name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError
from edgeinfer.compat.llama_cpp.forms import form_of
from edgeinfer.compat.llama_cpp.templates import ChatFormat

if TYPE_CHECKING:
    from edgeinfer.compat.llama_cpp.llama import Llama

NAME = "chatml-function-calling"
_LISTED = (
    "{% if tools %}\n\nThese functions can be called:\n{% for tool in tools %}\n"
    "functions.{{ tool.function.name }}:\n{{ tool.function.parameters | tojson }}\n{% endfor %}\n"
    "To call one, write its name and its arguments:\n\n"
    'functions.NAME:\n{ "argument": "value" }{% endif %}'
)
FORMAT = ChatFormat(
    "{% if tools and messages[0].role != 'system' %}<|im_start|>system\n"
    + _LISTED
    + "<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% for call in message.tool_calls or [] %}functions.{{ call.function.name }}:\n"
    "{{ call.function.arguments }}{% endfor %}{{ message.content or '' }}"
    "{% if message.role == 'system' %}" + _LISTED + "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if forced %}functions.{{ forced }}:\n{% endif %}{% endif %}",
    ("<|im_end|>",),
)


def answer(
    *,
    llama: "Llama",
    messages: Sequence[Mapping[str, Any]],
    functions: Sequence[Mapping[str, Any]] | None = None,
    function_call: str | Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Answer a conversation: in text, or by the call that `tool_choice` names."""
    if functions is not None:
        options["tools"] = [{"type": "function", "function": one} for one in functions]
    if isinstance(function_call, Mapping):
        options["tool_choice"] = {"type": "function", "function": function_call}
    elif function_call is not None:
        options["tool_choice"] = function_call
    if options.get("tools") and options.get("tool_choice") == "auto":
        raise LlamaUnsupportedError(
            f"tool_choice: found 'auto' with the chat format {NAME!r} (need a function, 'none' or "
            "another chat_format); leave chat_format out to let the model's own template decide"
        )
    if options.get("tool_choice") is None:
        options["tool_choice"] = "none"
    return llama.chat_by_format(
        messages, FORMAT, variables={"forced": form_of(options).call}, **options
    )
