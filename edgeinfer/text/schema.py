"""Judge a JSON schema before it is compiled: its form, its size, where its references lead.

The compiler recurses over a schema and follows references, on the stack of the calling thread;
what stays below these limits stays far from its end.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, lcm
from typing import Any, Final

from edgeinfer.errors import GrammarError

MOST_CHARS: Final = 1 << 20
MOST_DEPTH: Final = 100  # of JSON; the compiler's own reader takes 127
MOST_LEVELS: Final = 1000  # the deepest of all definitions, one after another
MOST_NAMES: Final = 1000  # in one object: compiling takes the square of them
MOST_VALUES: Final = 50_000
MOST_REMAINDERS: Final = 50_000  # 0.5 s; twice as many take four times as long
MOST_JOINED: Final = 10  # whether expressions have a text in common takes 1 s, and soon for ever
MOST_SHOWN: Final = 80  # characters of a pointer in a message
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # keys inside are no keywords
_MEANT = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
}
_DATA = ("enum", "const", "default", "examples", "example")


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a schema: how deep it lies, and whether its keys are names of the author's."""

    value: Any
    depth: int = 1
    is_names: bool = False
    is_data: bool = False
    key: str = "#"
    parent: "_Place | None" = None

    @property
    def is_schema(self) -> bool:
        """Whether its keys are keywords."""
        return isinstance(self.value, dict) and not (self.is_names or self.is_data)

    @property
    def pointer(self) -> str:
        """Its JSON pointer, as far as a message shows it; made where it is asked for only."""
        keys, place = [self.key], self.parent
        while place is not None:
            keys.append(place.key)
            place = place.parent
        shown = "/".join(key.replace("~", "~0").replace("/", "~1") for key in reversed(keys))
        return shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + "..."


def read_schema(schema: Any) -> dict[str, Any]:
    """Return a schema as a dict of JSON's types.

    Takes a mapping, its JSON text, True for any value, or a class with a `model_json_schema` method
    (pydantic's). Raises GrammarError, which says what is wrong and where in the schema, by a JSON
    pointer.
    """
    describe = getattr(schema, "model_json_schema", None)
    if isinstance(schema, type) and callable(describe):
        schema = describe()
    text = schema if isinstance(schema, str) else _dumped(schema)
    if len(text) > MOST_CHARS:
        raise GrammarError(f"json_schema: found {len(text)} characters (need at most {MOST_CHARS})")
    try:
        read = json.loads(text)
    except RecursionError:
        raise GrammarError(f"json_schema: nested deeper than {MOST_DEPTH}") from None
    except ValueError as error:
        raise GrammarError(f"json_schema: is not JSON: {error}") from None
    if read is True:
        return {}
    if not isinstance(read, dict):
        raise GrammarError(f"json_schema: found {text[:40]} (need a JSON object)")
    check_schema(read)
    _add_types(read)
    return read


def check_schema(schema: dict[str, Any]) -> None:
    """Raise GrammarError where a schema is too large, too deep, or refers to what is not in it."""
    depths: dict[int, int] = {}  # of definitions, by identity: a reference has many spellings
    n_values = root_depth = n_levels = 0
    for place in _places(schema):
        n_values += 1
        if n_values > MOST_VALUES:
            raise _error("#", f"found more than {MOST_VALUES} values in it", "fewer")
        n_levels += max(0, place.depth - root_depth)
        root_depth = max(root_depth, place.depth)
        if not isinstance(place.value, dict) or place.is_data:
            continue
        if len(place.value) > MOST_NAMES:
            raise _error(place.pointer, f"found {len(place.value)} keys", f"at most {MOST_NAMES}")
        reference = None if place.is_names else place.value.get("$ref")
        if not isinstance(reference, str):
            continue
        target = _resolved(schema, reference, place)
        if id(target) not in depths:
            depths[id(target)] = max(inner.depth for inner in _places(target))
            n_levels += depths[id(target)]
        if n_levels > MOST_LEVELS:
            found = f"found definitions {n_levels} levels deep in all"
            raise _error(place.pointer, found, f"at most {MOST_LEVELS}")
    _check_multiples(schema)
    _check_intersections(schema)


def _check_multiples(schema: dict[str, Any]) -> None:
    """Raise where the automata that count by `multipleOf` could take long; several multiply.

    They have a state for each remainder, of which zeros at the end cost nothing.
    """
    found: set[Fraction] = set()
    for place in _places(schema):
        value = place.value.get("multipleOf") if place.is_schema else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # the compiler names what is wrong with it
        if not 0 < abs(value) < inf:
            continue
        found.add(Fraction(repr(abs(value))))
        scale = lcm(*(one.denominator for one in found))
        n_states = lcm(*(int(one * scale) for one in found))
        while n_states % 10 == 0:
            n_states //= 10
        if n_states > MOST_REMAINDERS:
            need = f"at most {MOST_REMAINDERS}, the least common multiple of all without its zeros"
            raise _error(f"{place.pointer}/multipleOf", f"found {str(value)[:40]}", need)


def _check_intersections(schema: dict[str, Any]) -> None:
    """Raise where more patterns than MOST_JOINED might have to hold for one text."""
    patterns: set[str] = set()
    n_joints = 0
    for place in _places(schema):
        if not place.is_schema:
            continue
        pattern, parts = place.value.get("pattern"), place.value.get("allOf")
        if isinstance(parts, list):
            n_joints += len(parts) - 1
        if isinstance(pattern, str):
            patterns.add(pattern)
            n_joints += parts is not None or "$ref" in place.value
        if min(len(patterns), n_joints) > MOST_JOINED:
            found = f"found {len(patterns)} patterns, and {n_joints} places where two may meet"
            raise _error(place.pointer, found, f"at most {MOST_JOINED} of either: allOf, or $ref")


def _add_types(schema: dict[str, Any]) -> None:
    """Take a schema that speaks of properties, and of no type, for one of objects; so of arrays.

    By the letter it allows every number and text, too, which is what nobody means.
    """
    for place in _places(schema):
        if not place.is_schema or any(key in place.value for key in ("type", "enum", "const")):
            continue
        for kind, keys in _MEANT.items():
            if any(key in place.value for key in keys):
                place.value["type"] = kind
                break


def pointer_to(schema: dict[str, Any], keyword: str) -> str | None:
    """Return where a schema has a keyword first, as a JSON pointer."""
    for place in _places(schema):
        if place.is_schema and keyword in place.value:
            return f"{place.pointer}/{keyword}"
    return None


def _dumped(schema: Any) -> str:
    if not isinstance(schema, Mapping | bool):
        raise GrammarError(
            f"json_schema: found {type(schema).__name__} (need a dict, or JSON text)"
        )
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"json_schema: cannot be written as JSON: {error}") from None


def _places(schema: Any) -> Iterator[_Place]:
    """Walk over all values of a schema, without recursion."""
    left = [_Place(schema)]
    while left:
        place = left.pop()
        yield place
        if place.depth > MOST_DEPTH:
            raise _error(place.pointer, "nested deeper than that", f"{MOST_DEPTH} levels")
        depth = place.depth + 1
        if isinstance(place.value, dict):
            for key, value in place.value.items():
                is_keyword = not (place.is_names or place.is_data)
                left.append(
                    _Place(
                        value,
                        depth,
                        is_names=is_keyword and key in _NAMED,
                        is_data=place.is_data or (is_keyword and key in _DATA),
                        key=key,
                        parent=place,
                    )
                )
        elif isinstance(place.value, list):
            left += (
                _Place(value, depth, is_data=place.is_data, key=str(i), parent=place)
                for i, value in enumerate(place.value)
            )


def _resolved(schema: dict[str, Any], reference: str, place: _Place) -> Any:
    """Return what a reference within the schema leads to; nothing is ever fetched."""
    found: Any = schema
    is_local = reference == "#" or reference.startswith("#/")
    for key in reference.split("/")[1:] if is_local else ():
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 9:
            found = found[int(key)] if int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    if not is_local or not isinstance(found, dict | bool):
        need = "a definition within the schema, such as '#/$defs/name'"
        raise _error(f"{place.pointer}/$ref", f"found {reference[:60]!r}", need)
    return found


def _error(pointer: str, found: str, need: str) -> GrammarError:
    return GrammarError(f"json_schema: {pointer}: {found} (need {need})")
