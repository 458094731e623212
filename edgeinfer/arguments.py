"""Name the arguments that requests share, each once; methods take them as keywords.

Goes in: a function with `**options: Unpack[...]`. Comes out: the same, whose signature lists them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypedDict, TypeVar, get_type_hints

from edgeinfer.completion import PromptProgress
from edgeinfer.engine.processed import LogitsProcessor
from edgeinfer.overflow import Overflow
from edgeinfer.text.grammar import Grammar

P = ParamSpec("P")
R = TypeVar("R")


class AnswerOptions(TypedDict, total=False):
    """How an answer is made. None, or left out: the default."""

    max_tokens: int | None
    stop: str | Iterable[str] | None
    grammar: Grammar | str | None
    json_schema: Mapping[str, Any] | str | type | None
    regex: str | None
    response_format: Mapping[str, Any] | None
    seed: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    top_n_sigma: float | None
    min_keep: int | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_last_n: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_last_n: int | None
    dry_breakers: Iterable[str] | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    logit_bias: Mapping[int, float] | None
    choice: int | None
    logits_processor: LogitsProcessor | None
    logprobs: int | None
    overflow: Overflow | None
    priority: int | None
    progress: PromptProgress | None
    timeout_s: float | None


class TextOptions(AnswerOptions, total=False):
    """How a text is continued."""

    echo: bool | None
    parse_special: bool | None


class ChatOptions(AnswerOptions, total=False):
    """How a conversation is answered."""

    template: str | None
    tools: Sequence[Mapping[str, Any]] | None
    template_variables: Mapping[str, Any] | None


class ReadOptions(TypedDict, total=False):
    """How texts are read."""

    truncate: bool | None
    priority: int | None
    timeout_s: float | None
    progress: Callable[[int, int], None] | None


class EmbedOptions(ReadOptions, total=False):
    """How texts become vectors."""

    normalize: bool | None
    pooling: str | None
    dimensions: int | None


class RankOptions(ReadOptions, total=False):
    """How documents are ranked."""

    top_n: int | None
    raw: bool | None
    template: str | None


def spelled_out(options: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function's signature list the options behind its `**options`; refuse other names."""
    hints = get_type_hints(options)
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in hints.items()
    ]

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = {*hints, *(parameter.name for parameter in own)}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in known:
                    raise _unexpected(function.__name__, name, known)
            return function(*args, **kwargs)

        made: Any = _as_coroutine(checked) if inspect.iscoroutinefunction(function) else checked
        made.__signature__ = signature.replace(parameters=own + listed)
        shown: Callable[P, R] = made
        return shown

    return wrap


def _as_coroutine(function: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function that returns a coroutine be known as one that is to be awaited."""

    @wraps(function)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
        return await function(*args, **kwargs)

    return awaited


def _unexpected(function: str, name: str, known: Iterable[str]) -> TypeError:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
