"""Jinja's filters and tests, each within the budget of its rendering.

Goes in: the sandbox that renders. Comes out: the filters and tests it offers, those of Jinja that
chat templates use, and those that the Hugging Face library adds (tojson, from_json). Filters that
make layout for web pages are left out.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jinja2 import filters as jinja_filters
from jinja2 import tests as jinja_tests
from markupsafe import escape

from edgeinfer.errors import TemplateError
from edgeinfer.text.budget import MAX_WIDTH, words

if TYPE_CHECKING:
    from edgeinfer.text.sandbox import Sandbox

TICKING = "_ticking"
_MAX_TRIM_SET = 1000
_MAX_ROWS = 100_000

# Results no larger than a small multiple of the input, in linear time.
_PLAIN = words(
    "abs attr capitalize count d default filesizeformat first float int items last length lower "
    "map reject rejectattr reverse select selectattr title truncate upper wordcount"
)
# These compare or hash the items of their input.
_COMPARING = words("dictsort groupby max min sort unique")
_COMPARING_TESTS = words("eq equalto == ne != lt lessthan < le <= gt greaterthan > ge >= in")


class NoContent(str):
    """The content of a message that has none: writes nothing, and `is none` holds for it."""

    __slots__ = ()


class Ticking:
    """An iterable that asks the budget before each item."""

    def __init__(self, sandbox: "Sandbox", items: Iterable[Any]) -> None:
        self._sandbox = sandbox
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        tick = self._sandbox.budget.tick
        for item in self._items:
            tick()
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def make_filters(sandbox: "Sandbox") -> dict[str, Callable[..., Any]]:
    """Return the filters by name."""
    table = {name: _guarded(sandbox, jinja_filters.FILTERS[name]) for name in _PLAIN}
    table |= {
        name: _guarded(sandbox, _comparing(sandbox, jinja_filters.FILTERS[name]))
        for name in _COMPARING
    }
    bounded = _Bounded(sandbox)
    own: dict[str, Callable[..., Any]] = {
        "batch": bounded.batch,
        "center": bounded.center,
        "e": bounded.escape,
        "escape": bounded.escape,
        "forceescape": bounded.escape,
        "format": bounded.format,
        "from_json": bounded.from_json,
        "indent": bounded.indent,
        "join": bounded.join,
        "list": bounded.list,
        "replace": bounded.replace,
        "round": bounded.round,
        "safe": lambda value: value,
        "slice": bounded.slice,
        "string": bounded.string,
        "sum": bounded.sum,
        "tojson": bounded.tojson,
        "trim": bounded.trim,
    }
    table |= {name: _guarded(sandbox, function) for name, function in own.items()}
    table[TICKING] = lambda items: Ticking(sandbox, items)
    return table


def make_tests(sandbox: "Sandbox") -> dict[str, Any]:
    """Return the tests ("is ...") by name."""
    table: dict[str, Any] = {**jinja_tests.TESTS}
    for name in _COMPARING_TESTS:
        table[name] = _compared(sandbox, table[name])
    table["none"] = lambda value: value is None or isinstance(value, NoContent)
    return table


def _guarded(sandbox: "Sandbox", function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        for value in args[:2]:
            if isinstance(value, str):
                sandbox.budget.check(2 * len(value))
        return sandbox.budget.made(function(*args, **kwargs))

    return guarded


def _comparing(sandbox: "Sandbox", function: Callable[..., Any]) -> Callable[..., Any]:
    """Take the environment, the items, the options, as all Jinja's comparing filters do."""

    @functools.wraps(function)
    def comparing(first: Any, *args: Any, **kwargs: Any) -> Any:
        values = (first, *args)
        at = 1 if first is sandbox else 0
        items = values[at] if isinstance(values[at], dict) else _listed(sandbox, values[at])
        sandbox.budget.check_deep(items)
        return function(*values[:at], items, *values[at + 1 :], **kwargs)

    return comparing


def _compared(sandbox: "Sandbox", function: Callable[..., Any]) -> Callable[..., Any]:
    def compared(*args: Any) -> Any:
        return function(*map(sandbox.budget.comparable, args))

    return compared


def _listed(sandbox: "Sandbox", items: Iterable[Any]) -> list[Any]:
    if isinstance(items, str):
        sandbox.budget.check(80 * len(items))
    return list(Ticking(sandbox, items))


class _Bounded:
    """Filters whose results could be far larger than their input."""

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox

    def batch(self, value: Any, linecount: int, fill_with: Any = None) -> list[Any]:
        self._check_rows(linecount)
        return list(jinja_filters.do_batch(_listed(self._sandbox, value), linecount, fill_with))

    def slice(self, value: Any, slices: int, fill_with: Any = None) -> list[Any]:
        self._check_rows(slices)
        return list(jinja_filters.sync_do_slice(_listed(self._sandbox, value), slices, fill_with))

    def center(self, value: Any, width: int = 80) -> str:
        self._sandbox.budget.check_width(str(width))
        return self._text(value).center(width)

    def escape(self, value: Any) -> str:
        text = self._text(value)
        self._sandbox.budget.check(6 * len(text))
        return str(escape(text))

    def format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        text = self._text(value)
        self._sandbox.budget.check_printf(text, kwargs or args)
        return text % (kwargs or args)

    def from_json(self, value: str) -> Any:
        self._sandbox.budget.check(40 * len(value))
        self._sandbox.budget.spend(8 * len(value))
        return json.loads(value)

    def indent(self, s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        text = self._text(s)
        by = width if isinstance(width, str) else " " * self._width(width)
        self._sandbox.budget.check(2 * len(text) + (text.count("\n") + 2) * (len(by) + 60))
        return jinja_filters.do_indent(text, by, first, blank)

    def join(self, value: Any, d: Any = "", attribute: Any = None) -> str:
        sandbox = self._sandbox
        take = _taker(sandbox, attribute)
        parts: list[str] = []
        separator = self._text(d)
        for item in Ticking(sandbox, value):
            parts.append(self._text(take(item)))
            sandbox.budget.spend(8 + len(parts[-1]))
            sandbox.budget.check(len(parts) * len(separator))
        return separator.join(parts)

    def list(self, value: Any) -> list[Any]:
        return _listed(self._sandbox, value)

    def replace(self, s: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = self._text(s), self._text(old), self._text(new)
        found = text.count(old)
        self._sandbox.budget.check(4 * (len(text) + found * len(new)))
        return text.replace(old, new, -1 if count is None else count)

    def round(self, value: Any, precision: int = 0, method: Any = "common") -> float:
        if abs(precision) > 30:
            raise TemplateError(f"it rounds to {precision} digits (allowed -30 to 30)")
        return jinja_filters.do_round(value, precision, method)

    def string(self, value: Any) -> str:
        return self._text(value)

    def sum(self, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
        take = _taker(self._sandbox, attribute)
        total = start
        for item in Ticking(self._sandbox, iterable):
            total = self._sandbox.add(total, take(item))
        return total

    def tojson(
        self,
        x: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As transformers defines it: plain JSON, no escapes for HTML."""
        if indent is not None:
            self._width(indent)
        if hasattr(x, "__next__"):
            x = _listed(self._sandbox, x)
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        chunks: list[str] = []
        for chunk in encoder.iterencode(x):
            chunks.append(chunk)
            self._sandbox.budget.spend(8 + len(chunk))
        return "".join(chunks)

    def trim(self, value: Any, chars: str | None = None) -> str:
        if chars is not None and len(chars) > _MAX_TRIM_SET:
            raise TemplateError(f"it trims a set of {len(chars)} (allowed {_MAX_TRIM_SET})")
        return self._text(value).strip(chars)

    def _text(self, value: Any) -> str:
        return self._sandbox.budget.text(value)

    def _width(self, width: int) -> int:
        if not 0 <= width <= MAX_WIDTH:
            raise TemplateError(f"it indents by {width} (allowed 0 to {MAX_WIDTH})")
        return width

    def _check_rows(self, n_rows: int) -> None:
        if not 0 < n_rows <= _MAX_ROWS:
            raise TemplateError(f"it asks for {n_rows} rows (allowed 1 to {_MAX_ROWS})")


def _taker(sandbox: "Sandbox", attribute: Any) -> Callable[[Any], Any]:
    if attribute is None:
        return lambda item: item
    return jinja_filters.make_attrgetter(sandbox, attribute)
