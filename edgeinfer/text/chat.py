"""Lay out a conversation as the model was trained to read it, by the template in its file.

Goes in: messages. Comes out: text, and where in it the messages spell control tokens. Knows no
token ids. A template that is missing or broken never keeps a model from loading: it is an error at
the first conversation, and no other model's format takes its place.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from edgeinfer.errors import InvalidParameterError, TemplateError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.messages import normalised, plain, size_of, with_json_arguments

if TYPE_CHECKING:
    from edgeinfer.text.sandbox import Sandbox

_KEY = "tokenizer.chat_template"
_PRIVATE_USE = range(0xE000, 0xF900)


class ChatTemplate:
    """A model's chat template; safe to use from several threads.

    Rendering is sandboxed and bounded: 2 s, and 64 MB plus 32 times the size of the messages.
    """

    def __init__(
        self,
        source: str,
        *,
        where: str = "chat template",
        bos_token: str = "",
        eos_token: str = "",
        variants: Mapping[str, str] | None = None,
        fault: str | None = None,
    ) -> None:
        """Take the template; it is compiled at the first rendering.

        Args:
            source: Jinja source.
            where: the file, for messages.
            bos_token, eos_token: spellings, variables of those names in the template.
            variants: further templates of the model by name; "tool_use" is taken instead of
                `source` when `tools` are given, as Hugging Face's library does.
            fault: what is wrong with the template in the file; rendering raises it.
        """
        self._source = source
        self._where = where
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._variants = dict(variants or {})
        self._fault = fault
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    @property
    def source(self) -> str:
        """The template's Jinja source."""
        return self._source

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the model's other templates."""
        return tuple(self._variants)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Return the conversation as text.

        Args:
            messages: dicts with "role" and "content" (text, a list of text parts, or None beside
                "tool_calls"); other keys are passed on.
            add_generation_prompt: end with the opening of the assistant's turn.
            **variables: further variables of the template: `tools`, `enable_thinking`, ...

        Raises:
            InvalidParameterError: a message is malformed; the error names it.
            TemplateError: the template is broken, refuses the conversation, or costs too much.
        """
        checked = normalised(messages)
        given = self._variables(add_generation_prompt, variables)
        return self._render(checked, given)

    def render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        find: Callable[[str], Sequence[int]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> tuple[str, frozenset[int]]:
        """Return the text of `render`, and where in it the caller's words spell control tokens.

        Args:
            messages: as for `render`.
            find: returns the positions in a text at which a control token's spelling begins.
            add_generation_prompt: as for `render`.
            **variables: as for `render`.

        Returns:
            The text; the positions in it of those spellings that came from messages or variables.

        Raises:
            InvalidParameterError, TemplateError: as `render`; also if the template rewrites such a
                spelling, so that it cannot be told from the template's own tokens.
        """
        checked = normalised(messages)
        given = self._variables(add_generation_prompt, variables)
        text = self._render(checked, given)
        own = {key: value for key, value in given.items() if key in variables}
        spelled = {s for s in _strings([checked, own]) if find(s)}
        if not spelled:
            return text, frozenset()
        marker = _unused_character([text, self._source, *_strings([checked, own])])

        marks = {s: _marked(s, find(s), marker) for s in spelled}
        rendered = self._render(_replaced(checked, marks), {**given, **_replaced(own, marks)})
        found = _unmark(rendered, marker, text)
        if found is not None:
            return text, found
        raise self._error(
            "it rewrites a message that spells a control token, which could then end its turn; "
            "change the message, or set parse_content_special to allow it"
        )

    def _variables(self, add_generation_prompt: bool, given: Mapping[str, Any]) -> dict[str, Any]:
        if "messages" in given:
            raise InvalidParameterError("messages: given twice")
        copied = plain(given, "variables")
        return {
            "tools": None,
            "documents": None,
            **self._tokens,
            **copied,
            "add_generation_prompt": add_generation_prompt,
        }

    def _render(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        if self._fault is not None:
            raise self._error(self._fault)
        try:
            return self._render_once(messages, variables)
        except TemplateError as error:
            again = with_json_arguments(messages)
            if again is None:
                raise
            try:
                return self._render_once(again, variables)
            except TemplateError:
                raise error from None

    def _render_once(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        from jinja2 import TemplateSyntaxError

        from edgeinfer.text.filters import NoContent
        from edgeinfer.text.sandbox import RefusedError, Sandbox

        source = self._source
        if variables["tools"] and "tool_use" in self._variants:
            source = self._variants["tool_use"]
        # Templates may append to lists; each rendering gets its own copies.
        values: dict[str, Any] = plain({**variables, "messages": messages}, "variables")
        for message in values["messages"]:
            if message.get("content") is None:
                message["content"] = NoContent()
        try:
            with self._lock:
                if self._sandbox is None:
                    self._sandbox = Sandbox()
                return self._sandbox.render(source, values, size_of(values))
        except RefusedError as error:
            raise TemplateError(
                f"{self._where}: the chat template refuses the conversation: {error}"
            ) from None
        except TemplateError as error:
            raise self._error(str(error)) from None
        except TemplateSyntaxError as error:
            raise self._error(f"line {error.lineno}: {error.message}") from None
        except Exception as error:
            raise self._error(f"{type(error).__name__}: {str(error)[:500]}") from None

    def _error(self, message: str) -> TemplateError:
        return TemplateError(f"{self._where}: chat template: {message}")


def template_from_metadata(
    metadata: Metadata, where: str, *, bos_token: str, eos_token: str
) -> ChatTemplate | None:
    """Return the file's chat template, None if it has none.

    `tokenizer.chat_template` is the template, `tokenizer.chat_template.NAME` its variants; if there
    are only variants, the first in the file stands in. A value that is no text is a fault shown at
    the first rendering.
    """
    variants = {
        key.removeprefix(_KEY + "."): value
        for key, value in metadata.items()
        if key.startswith(_KEY + ".") and isinstance(value, str)
    }
    raw = metadata.get(_KEY)
    source, fault = "", None
    if isinstance(raw, str):
        source = raw
    elif raw is not None:
        fault = f"found {type(raw).__name__} in key {_KEY!r} (need text)"
    elif variants:
        source = next(iter(variants.values()))
    else:
        return None
    return ChatTemplate(
        source,
        where=where,
        bos_token=bos_token,
        eos_token=eos_token,
        variants=variants,
        fault=fault,
    )


def _strings(value: Any) -> set[str]:
    """Return all texts in plain data, keys included."""
    found: set[str] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, dict):
            found.update(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found


def _replaced(value: Any, by: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return by.get(value, value)
    if isinstance(value, dict):
        return {by.get(key, key): _replaced(item, by) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, by) for item in value]
    return value


def _unused_character(texts: list[str]) -> str:
    used = set().union(*texts)
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
    marker = next(free, None)
    if marker is None:
        raise InvalidParameterError(
            f"messages: found all {len(_PRIVATE_USE)} private-use characters (need one unused)"
        )
    return marker


def _marked(text: str, starts: Sequence[int], marker: str) -> str:
    cuts = [0, *starts, len(text)]
    return marker.join(text[a:b] for a, b in pairwise(cuts))


def _unmark(rendered: str, marker: str, text: str) -> frozenset[int] | None:
    pieces = rendered.split(marker)
    if "".join(pieces) != text:
        return None
    found, at = set(), 0
    for piece in pieces[:-1]:
        at += len(piece)
        found.add(at)
    return frozenset(found)
