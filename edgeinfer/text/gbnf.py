"""Translate GBNF, the grammar notation of llama.cpp, into the Lark notation of llguidance.

Text goes in, text comes out. Rules that lead to no recursion become terminals, which are matched as
one regular expression; the others become rules over them. Knows no tokens.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from edgeinfer.errors import GrammarError

MOST_NESTED: Final = 50
MOST_REPEATED: Final = 1_000_000
_TOKEN = re.compile(
    r"(?P<space>[ \t]+|#[^\r\n]*)|(?P<newline>[\r\n]+)|(?P<is>::=)|(?P<name>[A-Za-z0-9_-]+)"
    r'|(?P<text>"(?:[^"\\\r\n]|\\.)*")|(?P<set>\[(?:[^\]\\\r\n]|\\.)*\])'
    r"|(?P<times>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})|(?P<sign>[|().])"
)
_CHARACTER = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[\\\"\[\]nrt])|[^\\]"
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = "/[\\x{0}-\\x{10FFFF}]/"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int
    begins_line: bool


def gbnf_to_lark(source: str) -> str:
    """Return the same grammar in Lark's notation; its start is the rule `root`.

    Raises GrammarError, which says the line and the column, for what is no GBNF, for rules that are
    missing or there twice, and for groups nested more than MOST_NESTED deep.
    """
    bodies = _bodies(source)
    for name, body in bodies.items():
        for token in body:
            if token.kind == "name" and token.text not in bodies:
                _fail(source, token.at, f"found {token.text!r} (need the name of a rule)")
        if not body:
            raise GrammarError(f"grammar: rule {name!r}: found nothing after its ::=")
    if "root" not in bodies:
        raise GrammarError("grammar: found no rule 'root' (need one: it is where answers begin)")
    names = _names({name: _references(body) for name, body in bodies.items()})
    lines = [
        f"{names[name]}: {_Body(source, bodies[name], names.__getitem__).read()}" for name in names
    ]
    return "\n".join([f"start: {names['root']}", *lines, ""])


def _bodies(source: str) -> dict[str, list[_Token]]:
    """Return the tokens of each rule, by its name."""
    tokens = list(_tokens(source))
    if not tokens:
        raise GrammarError("grammar: found no rules (need at least 'root ::= ...')")
    heads = [i for i in range(len(tokens) - 1) if tokens[i + 1].kind == "is"]
    if heads[:1] != [0]:
        _fail(source, tokens[0].at, f"found {tokens[0].text[:40]!r} (need 'name ::=')")
    bodies: dict[str, list[_Token]] = {}
    for head, end in zip(heads, [*heads[1:], len(tokens)], strict=True):
        name = tokens[head]
        if name.kind != "name":
            _fail(source, name.at, f"found {name.text[:40]!r} (need the name of a rule)")
        if name.text in bodies:
            _fail(source, name.at, f"found rule {name.text!r} again (need each once)")
        bodies[name.text] = tokens[head + 2 : end]
    return bodies


def _tokens(source: str) -> Iterator[_Token]:
    at, begins_line = 0, True
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup is None:
            _fail(source, at, f"found {source[at : at + 20]!r} (need a rule, in GBNF's notation)")
        if found.lastgroup == "newline":
            begins_line = True
        elif found.lastgroup != "space":
            yield _Token(found.lastgroup, found[0], at, begins_line)
            begins_line = False
        at = found.end()


def _references(body: list[_Token]) -> set[str]:
    return {token.text for token in body if token.kind == "name"}


def _names(references: dict[str, set[str]]) -> dict[str, str]:
    """Return Lark's names of the rules that `root` leads to; those of terminals are capitals."""
    reached, left = {"root"}, ["root"]
    while left:
        new = references[left.pop()] - reached
        reached |= new
        left += new
    used_by: dict[str, list[str]] = {name: [] for name in reached}
    n_open = {name: len(references[name]) for name in reached}
    for name in reached:
        for other in references[name]:
            used_by[other].append(name)
    flat = [name for name, n in n_open.items() if n == 0]
    for name in flat:  # grows as it goes
        for user in used_by[name]:
            n_open[user] -= 1
            if n_open[user] == 0:
                flat.append(user)
    terminals = set(flat)
    ordered = [name for name in references if name in reached]
    return {name: f"{'R' if name in terminals else 'r'}{i}" for i, name in enumerate(ordered)}


class _Body:
    """Read what stands behind one `::=`."""

    def __init__(self, source: str, tokens: list[_Token], name_of: Callable[[str], str]) -> None:
        self._source = source
        self._tokens = tokens
        self._name_of = name_of
        self._next = 0

    def read(self) -> str:
        """Return it in Lark's notation."""
        made = self._alternatives(0)
        if (token := self._peek()) is not None:
            self._refuse(token)
        return made

    def _alternatives(self, depth: int) -> str:
        parts = [self._sequence(depth)]
        while (token := self._peek()) is not None and token.text == "|":
            self._next += 1
            parts.append(self._sequence(depth))
        return " | ".join(parts)

    def _sequence(self, depth: int) -> str:
        items: list[str] = []
        may_break = True  # a line may end behind ::= and behind |
        while (token := self._peek()) is not None and token.text not in ("|", ")"):
            if token.begins_line and depth == 0 and not may_break:
                self._refuse(token)
            may_break = False
            self._next += 1
            if token.kind != "times":
                items.append(self._item(token, depth))
            elif items:
                items[-1] = self._repeated(items[-1], token)
            else:
                self._refuse(token)
        return " ".join(items) or '""'

    def _item(self, token: _Token, depth: int) -> str:
        if token.kind == "name":
            return self._name_of(token.text)
        if token.kind == "text":
            codes = self._codes(token.text[1:-1], token.at + 1)
            return "/" + "".join(map(_spelled, codes)) + "/" if codes else '""'
        if token.kind == "set":
            return self._set(token)
        if token.text == ".":
            return _ANY
        if token.text != "(":
            self._refuse(token)
        if depth == MOST_NESTED:
            _fail(self._source, token.at, f"found groups nested deeper than {MOST_NESTED}")
        inner = self._alternatives(depth + 1)
        if (end := self._peek()) is None or end.text != ")":
            _fail(self._source, token.at, "found ( without its )")
        self._next += 1
        return f"({inner})"

    def _repeated(self, item: str, token: _Token) -> str:
        if token.kind == "times" and token.text[0] != "{":
            return f"({item}){token.text}"
        low, comma, high = token.text[1:-1].partition(",")
        least = _count(low)
        most = _count(high) if high.strip() else (None if comma else least)
        if least > MOST_REPEATED or (most is not None and not least <= most <= MOST_REPEATED):
            need = f"need counts of 0 to {MOST_REPEATED}, the lower one first"
            _fail(self._source, token.at, f"found {token.text[:40]} ({need})")
        if most == 0:
            return '""'
        return f"({item}){{{least},{'' if most is None else most}}}"

    def _set(self, token: _Token) -> str:
        inner, at = token.text[1:-1], token.at + 1
        negated = inner.startswith("^")
        found = self._characters(inner[negated:], at + negated)
        if not found:
            _fail(self._source, token.at, f"found {token.text} (need at least one character)")
        ranges, i = [], 0
        while i < len(found):
            low = high = found[i][0]
            if i + 2 < len(found) and found[i + 1][1] == "-":
                high = found[i + 2][0]
                i += 2
            if high < low:
                _fail(self._source, token.at, f"found {token.text[:40]} with a range backwards")
            ranges.append(f"\\x{{{low:X}}}-\\x{{{high:X}}}")
            i += 1
        return f"/[{'^' if negated else ''}{''.join(ranges)}]/"

    def _codes(self, text: str, at: int) -> list[int]:
        return [code for code, _ in self._characters(text, at)]

    def _characters(self, text: str, at: int) -> list[tuple[int, str]]:
        """Return the code points of a text with escapes, each with how it is spelled."""
        made: list[tuple[int, str]] = []
        i = 0
        while i < len(text):
            found = _CHARACTER.match(text, i)
            if found is None:
                shown = text[i : i + 10]
                _fail(self._source, at + i, f"found {shown!r} (need \\n \\r \\t \\xHH \\uHHHH ...)")
            code = _code(found[0])
            if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
                _fail(self._source, at + i, f"found {found[0]} (need a Unicode character)")
            made.append((code, found[0]))
            i = found.end()
        return made

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _refuse(self, token: _Token) -> NoReturn:
        _fail(self._source, token.at, f"found {token.text[:40]!r}, which cannot stand here")


def _code(spelled: str) -> int:
    if spelled[0] != "\\":
        return ord(spelled)
    if spelled[1] in "xuU":
        return int(spelled[2:], 16)
    return ord(_NAMED.get(spelled[1], spelled[1]))


def _spelled(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:X}}}"


def _count(digits: str) -> int:
    digits = digits.strip()
    return int(digits) if len(digits) <= 9 else MOST_REPEATED + 1


def _fail(source: str, at: int, what: str) -> NoReturn:
    line = source.count("\n", 0, at) + 1
    column = at - (source.rfind("\n", 0, at) + 1) + 1
    raise GrammarError(f"grammar: line {line}, column {column}: {what}")
