"""Turn the arguments of llama-cpp-python's requests into those of `Model`."""

from collections.abc import Mapping, Sequence
from typing import Any

_SAME = (
    *("temperature", "top_p", "min_p", "typical_p", "mirostat_tau", "mirostat_eta"),
    *("frequency_penalty", "presence_penalty", "repeat_penalty"),
)
MOST_BIAS = 100.0


def sampling_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say how tokens are chosen, and how many."""
    options = {name: arguments[name] for name in _SAME if arguments.get(name) is not None}
    options["mirostat"] = arguments.get("mirostat_mode") or 0
    options["top_k"] = max(0, arguments.get("top_k") or 0)
    max_tokens = arguments.get("max_tokens")
    options["max_tokens"] = None if max_tokens is None or max_tokens < 1 else max_tokens
    bias = arguments.get("logit_bias")
    if bias:
        options["logit_bias"] = {
            int(id): max(-MOST_BIAS, min(MOST_BIAS, float(value))) for id, value in bias.items()
        }
    return options


def stop_strings(stop: str | Sequence[str] | None) -> list[str]:
    """Return the strings that end an answer; empty ones never came, and do not count."""
    texts = [stop] if isinstance(stop, str) else list(stop or ())
    return [text for text in texts if text]


def chat_variables(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a conversation: tools, log-probabilities."""
    options: dict[str, Any] = {}
    if arguments.get("tools") and arguments.get("tool_choice") != "none":
        options["tools"] = arguments["tools"]
    if arguments.get("functions") and arguments.get("function_call") != "none":
        options["template_variables"] = {"functions": arguments["functions"]}
    if arguments.get("logprobs"):
        options["logprobs"] = arguments.get("top_logprobs") or 0
    return options
