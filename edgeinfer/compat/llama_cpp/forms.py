"""Find what form an answer must have: by a grammar, a response format, or a call to be made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeinfer.compat.llama_cpp.errors import LlamaValueError
from edgeinfer.compat.llama_cpp.llama_grammar import LlamaGrammar
from edgeinfer.request import chosen_grammar
from edgeinfer.text.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer must look like, None if it may be any text.

    call: the function whose arguments it then is, if it is to be a call.
    """

    grammar: Grammar | None = None
    call: str | None = None


def grammar_of(value: Any) -> Grammar | None:
    """Return the grammar of an argument `grammar`."""
    if value is None or isinstance(value, Grammar):
        return value
    if isinstance(value, LlamaGrammar):
        return value.edgeinfer
    raise LlamaValueError(f"grammar: found {type(value).__name__} (need a LlamaGrammar)")


def form_of(arguments: Mapping[str, Any]) -> Form:
    """Return the form that the arguments of a conversation ask for."""
    grammar = grammar_of(arguments.get("grammar"))
    asked = chosen_grammar(
        {"grammar": grammar, "response_format": arguments.get("response_format")}
    )
    function = _called(arguments)
    if function is None:
        return Form(asked)
    if asked is not None:
        raise LlamaValueError(
            f"tool_choice: found grammar or response_format beside {function['name']!r} "
            "(give one of them: a call has the form of its parameters)"
        )
    parameters = function.get("parameters") or {"type": "object"}
    return Form(Grammar.from_json_schema(parameters), function["name"])


def _called(arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the function that has to be called, if one has."""
    for choice, listed in (("tool_choice", "tools"), ("function_call", "functions")):
        value = arguments.get(choice)
        if value in (None, "auto", "none"):
            continue
        functions = [entry.get("function", entry) for entry in arguments.get(listed) or ()]
        name = _name_of(value)
        if value == "required" and len(functions) == 1:
            name = functions[0].get("name")
        for function in functions:
            if name is not None and function.get("name") == name:
                found: Mapping[str, Any] = function
                return found
        known = ", ".join(repr(function.get("name")) for function in functions)
        raise LlamaValueError(
            f"{choice}: found {value!r} (need 'auto', 'none', or the name of one of the {listed}: "
            f"{known or 'there are none'})"
        )
    return None


def _name_of(choice: Any) -> Any:
    """Return the name in {"function": {"name": ...}}, {"name": ...}, or alone."""
    if isinstance(choice, Mapping):
        choice = choice.get("function", choice)
    return choice.get("name") if isinstance(choice, Mapping) else choice
