"""Check the arguments of a request, one function each; every error names what is allowed."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from edgeinfer.engine.sampler import MOST_LOGPROBS
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import InvalidParameterError
from edgeinfer.text.grammar import Grammar
from edgeinfer.text.tokenizer import Tokenizer

DRY_BREAKERS = ("\n", ":", '"', "*")  # llama.cpp's
FORMS = ("grammar", "json_schema", "regex", "response_format")
MOST_STRINGS = 64
MOST_CHARS = 1024
MOST_ANSWERS = 128
MOST_PRIORITY = 1000
MOST_S = 1e9
ENDLESS = (1 << 31) - 1


def token_ids(ids: Iterable[int]) -> list[int]:
    """Return token ids as Python integers; 1.0 and "1" are refused."""
    try:
        return [operator.index(id) for id in ids]
    except TypeError as error:
        raise InvalidParameterError(f"token ids: {error} (need integers)") from None


def prompt_ids(tokenizer: Tokenizer, prompt: str | Iterable[int], parse_special: bool) -> list[int]:
    """Return the ids of a prompt: a text with what the model wants around it, or the ids given."""
    if not isinstance(prompt, str):
        return token_ids(prompt)
    if ids := tokenizer.encode(prompt, parse_special=parse_special):
        return ids
    raise InvalidParameterError(
        "prompt: found an empty text, and this model has no token that begins a text; "
        "give at least one character"
    )


def chosen_sampling(defaults: SamplingParams, arguments: Mapping[str, Any]) -> SamplingParams:
    """Return `defaults` with those sampling arguments in their place that are not None.

    The breakers of DRY are strings there and token ids here: `breaker_ids` makes them.
    """
    names = [field.name for field in fields(SamplingParams) if field.name != "dry_breakers"]
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    return replace(defaults, **given)


def chosen_grammar(arguments: Mapping[str, Any]) -> Grammar | None:
    """Return what an answer has to look like, None if it may be any text."""
    names = [name for name in FORMS if arguments.get(name) is not None]
    if len(names) > 1:
        raise InvalidParameterError(f"{names[0]}: found {names[1]}, too (give one of them)")
    if not names:
        return None
    given = arguments[names[0]]
    if names[0] == "json_schema":
        return Grammar.from_json_schema(given)
    if names[0] == "regex":
        return Grammar.from_regex(given)
    if names[0] == "response_format":
        return _formatted(given)
    return given if isinstance(given, Grammar) else Grammar.from_text(given)


def _formatted(response_format: Any) -> Grammar | None:
    """Return the grammar of a response_format of OpenAI's interface, or of llama-cpp-python's."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        schema = response_format.get("schema")
        return Grammar.any_json() if schema is None else Grammar.from_json_schema(schema)
    named = response_format.get("json_schema") if kind == "json_schema" else None
    if isinstance(named, Mapping) and "schema" in named:
        return Grammar.from_json_schema(named["schema"])
    raise InvalidParameterError(
        f"response_format: found {str(response_format)[:60]} (need a dict whose type is 'text', "
        "'json_object', perhaps with a schema, or 'json_schema' with json_schema={'schema': ...})"
    )


def answer_count(n: int) -> int:
    """Return how many answers a prompt gets."""
    if not _is_int(n) or not 1 <= n <= MOST_ANSWERS:
        raise InvalidParameterError(f"n: found {n!r} (need 1 to {MOST_ANSWERS})")
    return n


def most_tokens(max_tokens: int | None, n_ctx: int | None) -> int:
    """Return the most tokens of an answer; more than the context holds is the context.

    `n_ctx` None is a context without an end.
    """
    n_ctx = ENDLESS if n_ctx is None else n_ctx
    if max_tokens is None:
        return n_ctx
    if not _is_int(max_tokens) or max_tokens < 0:
        raise InvalidParameterError(
            f"max_tokens: found {max_tokens!r} (need 0 or more, or None for no limit)"
        )
    return min(max_tokens, n_ctx)


def most_logprobs(logprobs: int | None) -> int | None:
    """Return how many likeliest tokens to report, None for no report at all."""
    if logprobs is None:
        return None
    if not _is_int(logprobs) or not 0 <= logprobs <= MOST_LOGPROBS:
        raise InvalidParameterError(
            f"logprobs: found {logprobs!r} (need 0 to {MOST_LOGPROBS}, or None)"
        )
    return logprobs


def seconds(name: str, value: float | None) -> float | None:
    """Return a time, None for none."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MOST_S:
        raise InvalidParameterError(f"{name}: found {value!r} (need more than 0, or None)")
    return float(value)


def standing(priority: int | None) -> int:
    """Return a priority; None is 0."""
    if priority is None:
        return 0
    if not _is_int(priority) or abs(priority) > MOST_PRIORITY:
        raise InvalidParameterError(
            f"priority: found {priority!r} (need {-MOST_PRIORITY} to {MOST_PRIORITY})"
        )
    return priority


def strings(name: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the texts of an argument; one alone may come without a list around it."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    if len(texts) > MOST_STRINGS:
        raise InvalidParameterError(f"{name}: found {len(texts)} (need at most {MOST_STRINGS})")
    for at, text in enumerate(texts):
        if not isinstance(text, str) or not 1 <= len(text) <= MOST_CHARS:
            found = f"{len(text)} characters" if isinstance(text, str) else repr(text)
            raise InvalidParameterError(
                f"{name}[{at}]: found {found} (need a text of 1 to {MOST_CHARS} characters)"
            )
    return texts


def breaker_ids(tokenizer: Tokenizer, breakers: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences that break a repetition at the given strings.

    A token breaks it if the string is part of what the token stands for; so does the string's
    own tokenization where that is longer. Reads the whole vocabulary.
    """
    parts = [text.encode() for text in breakers]
    pieces = enumerate(tokenizer.pieces())
    single = [(id,) for id, piece in pieces if any(part in piece for part in parts)]
    spelled = [tuple(tokenizer.encode(text, add_special=False)) for text in breakers]
    return tuple(single) + tuple(ids for ids in spelled if len(ids) > 1)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
