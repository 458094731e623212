"""Say what form an answer must have: a Grammar, made of a schema, an expression or a text.

All forms become one notation, that of llguidance's Lark. Making a Grammar checks what can be
checked without a vocabulary, and needs no library; `matching` compiles it for a model.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from edgeinfer.errors import GrammarError
from edgeinfer.text.gbnf import gbnf_to_lark
from edgeinfer.text.schema import MOST_JOINED, MOST_LEVELS, check_schema, read_schema

MOST_CHARS: Final = 1 << 18  # of a grammar or an expression
# Endless white space is what small models write where a schema lets them.
WHITE_SPACE: Final = r" |\n[ \t]{0,20}"
_GBNF = re.compile(r"(?:\s|#[^\n]*\n)*[\w-]+\s*::=")
_HEADER = re.compile(r"(?m)^[ \t]*%llguidance\b")
_RULE = re.compile(
    r"(?m)^[ \t]*+[!?]?[A-Za-z_]\w*+(?:\.\d++)?\s*+(?:\[[^\]\n]*+\])?\s*+(?:\{[^}\n]*+\})?\s*+:"
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like, from its first character to its last.

    Attributes:
        lark: the grammar in Lark's notation, as llguidance reads it.
        kind: what it was made of: "json_schema", "regex", "gbnf" or "lark".
        schema: the JSON schema it was made of, if it was.
    """

    lark: str
    kind: str
    schema: str = ""

    @classmethod
    def from_json_schema(cls, schema: Mapping[str, Any] | str | bool | type) -> Self:
        """Return the grammar of the JSON documents that a schema allows.

        White space between the parts of a document is a space, or a line's end and up to 20 spaces.
        A schema with properties or items and no type is one of objects or arrays.

        Args:
            schema: a dict, its JSON text, or a class with `model_json_schema` such as pydantic's.

        Raises GrammarError: not a schema, too large, or it refers to what is not in it. Keywords
        that cannot be kept to are refused when the grammar is first used.
        """
        read = read_schema(schema)
        options = {"whitespace_pattern": WHITE_SPACE, "lenient": False, "coerce_one_of": False}
        body = json.dumps(read | {"x-guidance": options})
        return cls(f"start: %json {body}\n", "json_schema", json.dumps(read))

    @classmethod
    def any_json(cls) -> Self:
        """Return the grammar of all JSON objects."""
        return cls.from_json_schema({"type": "object"})

    @classmethod
    def from_regex(cls, regex: str) -> Self:
        """Return the grammar of the texts that a regular expression, Rust's kind, matches whole."""
        _check_length("regex", regex)
        body = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", regex, flags=re.DOTALL)
        return cls("start: /" + body.replace("\n", r"\n").replace("\r", r"\r") + "/\n", "regex")

    @classmethod
    def from_gbnf(cls, text: str) -> Self:
        """Return a grammar in GBNF, llama.cpp's notation; its start is the rule `root`."""
        _check_length("grammar", text)
        lark = gbnf_to_lark(text)
        _check_levels(lark)
        return cls(lark, "gbnf")

    @classmethod
    def from_lark(cls, text: str) -> Self:
        """Return a grammar in llguidance's Lark; its start is the rule `start`."""
        _check_length("grammar", text)
        _check_levels(text)
        if (n_joined := text.count("&")) > MOST_JOINED:
            raise GrammarError(f"grammar: found {n_joined} of & (need at most {MOST_JOINED})")
        _check_embedded(text)
        return cls(text, "lark")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return a grammar in GBNF if it begins with a rule of that kind (name ::=), else Lark."""
        return cls.from_gbnf(text) if _GBNF.match(text) else cls.from_lark(text)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the grammar in a file, as `from_text` reads it."""
        try:
            with open(path, encoding="utf-8-sig") as file:
                return cls.from_text(file.read(MOST_CHARS + 1))
        except OSError as error:
            raise GrammarError(f"{os.fspath(path)}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise GrammarError(f"{os.fspath(path)}: is not UTF-8: {error.reason}") from None

    @property
    def source(self) -> str:
        """The grammar as it is compiled.

        A text that may only go on in one way would otherwise be cut into tokens by the library, at
        a cost that grows with the length of the text; so the model chooses its tokens itself.
        """
        body = self.lark
        options: dict[str, Any] = {}
        found = _HEADER.search(body) if self.kind == "lark" else None
        if found is not None:
            given, end = _object_at(body, found.end())
            if given is None:
                raise GrammarError("grammar: %llguidance: found no JSON object (need one after it)")
            options, body = given, body[: found.start()] + body[end:]
        return f"%llguidance {json.dumps(options | {'no_forcing': True})}\n{body}"


def _check_length(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise GrammarError(f"{name}: found {type(text).__name__} (need a text)")
    if not 1 <= len(text) <= MOST_CHARS:
        raise GrammarError(f"{name}: found {len(text)} characters (need 1 to {MOST_CHARS})")


def _check_levels(lark: str) -> None:
    """Raise where rules and the groups in them could nest too deep, one within another.

    Parentheses in strings count, too.
    """
    n_levels = 0
    for rule in _RULE.split(lark)[1:]:
        deepest = depth = 0
        for sign in re.findall(r"[()]", rule):
            depth += 1 if sign == "(" else -1
            deepest = max(deepest, depth)
        n_levels += 1 + deepest
    if n_levels > MOST_LEVELS:
        raise GrammarError(
            f"grammar: found {n_levels} rules and levels of groups in them "
            f"(need at most {MOST_LEVELS})"
        )


def _check_embedded(lark: str) -> None:
    """Check the JSON schemas within a grammar as those that stand alone.

    What Python does not read as JSON, the library does not either.
    """
    for found in re.finditer(r"%json\b", lark):
        schema, _ = _object_at(lark, found.end())
        if schema is not None:
            check_schema(schema)


def _object_at(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """Return the JSON object that follows in a text, None if none does, and where it ends."""
    first = re.compile(r"\S").search(text, at)
    try:
        found, end = json.JSONDecoder().raw_decode(text, first.start() if first else at)
    except (ValueError, RecursionError):
        return None, at
    return (found, end) if isinstance(found, dict) else (None, at)
