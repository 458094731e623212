"""Keep what was read: conversations in files of the caller, prefixes in everybody's cache."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ids
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from edgeinfer.engine.pages import PAGE_LEN
from edgeinfer.engine.prefix import LEAST_PART
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.state import NO_SNAPSHOT
from edgeinfer.engine.storing import Held
from edgeinfer.errors import (
    InvalidParameterError,
    ModelClosedError,
    ResourceError,
    SessionError,
)
from edgeinfer.llm.holding import HeldModel
from edgeinfer.loader import kv_file, prefixes
from edgeinfer.loader.cache import publish, remove
from edgeinfer.loader.kv_file import Bytes, Header, KvFile
from edgeinfer.loader.mapped import display
from edgeinfer.request import prompt_ids

PAGES_AT_ONCE = 16  # between two steps, so that running answers go on
OPENINGS = ("Hello", "Why?")  # of users, that begin by different tokens

Messages = Ids[Mapping[str, Any]]
Conversation = str | Iterable[int] | Messages


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation that was saved or restored.

    messages: those it was saved with, none if it was a text or ids. tokens: all of it.
    n_restored: how many of them need not be computed again.
    """

    messages: tuple[dict[str, Any], ...]
    tokens: tuple[int, ...]
    n_restored: int


class KeepingModel(HeldModel):
    """A model that can write down what it has read, and read it again."""

    def save_session(
        self,
        path: str | os.PathLike[str],
        conversation: Conversation,
        *,
        template: str | None = None,
        tools: Ids[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> Session:
        """Write a conversation to a file, with the keys and values its tokens have.

        What of it is not in memory any more is computed first. The file holds the conversation
        itself, so it is readable by its owner alone; one that is there is replaced if it is a
        session itself.

        Args:
            path: the file.
            conversation: messages, laid out as `chat` does; or a text; or token ids.
            template, tools, template_variables: as `chat` takes them.

        Raises:
            InvalidParameterError: the conversation is malformed or empty.
            ContextOverflowError: it is longer than n_ctx.
            SessionError: the file is there and is no session, or its folder cannot be written.
            ResourceError: memory has no room for all of it.
        """
        messages, tokens = self._laid_out(
            conversation,
            template=template,
            tools=tools,
            template_variables=template_variables,
        )
        target = Path(path)
        _check_replaceable(target)
        held = self._read_whole(tokens)
        try:
            header = self._header(tokens, held, json.dumps(messages) if messages else "")
            _write_beside(target, header, self._parts(held))
        finally:
            self._release(held)
        return Session(messages, tuple(tokens), held.n_tokens)

    def load_session(self, path: str | os.PathLike[str]) -> Session:
        """Read a conversation that `save_session` wrote; what begins like it goes on from there.

        The answers are bit for bit those of the model that wrote it. The whole file is checked
        before anything is changed; what finds no room in memory is computed at its next use.

        Raises SessionError if the file is damaged, or is of another model, backend, KV type or
        activations: it says which.
        """
        self._check_open()
        with _opened(Path(path).resolve()) as file:  # a link of the caller's is meant
            executable = self._engine.executable
            sizes = executable.page_bytes, executable.snapshot_bytes
            file.need(self._binding, PAGE_LEN, *sizes)
            _check_tokens(file, self.n_vocab)
            file.check()
            messages = _messages_of(file)
            n_restored = self._restore(file)
        return Session(messages, file.header.tokens, n_restored)

    def keep_prefix(self, prefix: Conversation, *, most_bytes: int | None = None) -> Path:
        """Write a prefix file to the cache: models loaded from now on start prompts behind it.

        Args:
            prefix: messages, such as the one of the system, whatever the user says next; or a
                text; or token ids.
            most_bytes: what all prefix files together may take; those unused for longest make
                room. None: EDGEINFER_PREFIX_MAX_BYTES, else 4 GiB.

        Returns: the path of the file; one that is there is left as it is.
        Raises: as `save_session`; ResourceError where the cap or the disk does not allow it.
        """
        messages, tokens = self._laid_out(prefix)
        if messages:
            tokens = self._head(messages)
        held = self._read_whole(tokens)
        try:
            header = self._header(tokens[: held.n_tokens], held, "")
            most = prefixes.TIER.max_bytes() if most_bytes is None else most_bytes
            return prefixes.write_prefix(header, partial(self._parts, held), most_bytes=most)
        finally:
            self._release(held)

    def _laid_out(
        self, conversation: Conversation, **layout: Any
    ) -> tuple[tuple[dict[str, Any], ...], list[int]]:
        """Return the messages, if it is messages, and the tokens."""
        self._check_writes()
        if isinstance(conversation, str):
            return (), prompt_ids(self.tokenizer, conversation, False)
        items = list(conversation)
        if not items or not isinstance(items[0], Mapping):
            ids = cast(list[int], items)
            return (), prompt_ids(self.tokenizer, ids, False)
        messages = tuple(dict(cast(Mapping[str, Any], message)) for message in items)
        try:
            json.dumps(messages)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"messages: {error} (need what JSON can hold)") from None
        return messages, self.apply_template(messages, add_generation_prompt=False, **layout)

    def _head(self, messages: Messages) -> list[int]:
        """Return the tokens of messages up to what the user says next."""
        one, other = (
            self.apply_template([*messages, {"role": "user", "content": opening}])
            for opening in OPENINGS
        )
        pairs = enumerate(zip(one, other, strict=False))
        return one[: next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))]

    def _header(self, tokens: list[int], held: Held, conversation: str) -> Header:
        executable = self._engine.executable
        return Header(
            binding=self._binding,
            source=display(self.path.absolute()),
            conversation=conversation,
            tokens=tuple(tokens),
            n_stored=held.n_tokens,
            page_len=PAGE_LEN,
            page_bytes=executable.page_bytes,
            state_bytes=0 if held.snapshot == NO_SNAPSHOT else executable.snapshot_bytes,
        )

    def _read_whole(self, tokens: list[int]) -> Held:
        """Compute what is not known of `tokens` and hold their pages."""
        self._submit(Sequence(tokens, None, max_tokens=0)).result()
        held = self._driver.call(partial(self._engine.storage.hold, tokens))
        if held.n_tokens <= len(tokens) - LEAST_PART:
            self._release(held)
            raise ResourceError(
                f"session: found {held.n_tokens} of {len(tokens)} tokens in memory (need all); "
                "wait until other requests have ended, or load the model with a larger n_ctx"
            )
        return held

    def _parts(self, held: Held) -> Iterator[Bytes]:
        """Yield the pages and, of a hybrid, the state behind them."""
        storage = self._engine.storage
        for index in range(len(held.pages)):
            yield self._driver.call(partial(storage.read, held, index))
        if held.snapshot != NO_SNAPSHOT:
            yield self._driver.call(partial(storage.read_state, held))

    def _release(self, held: Held) -> None:
        with suppress(ModelClosedError):
            self._driver.call(partial(self._engine.storage.release, held))

    def _restore(self, file: KvFile) -> int:
        """Bring a file's pages in, some at a time, until no more find room."""
        restore = partial(self._engine.storage.restore, file, most_pages=PAGES_AT_ONCE)
        n_tokens, before = self._driver.call(restore), -1
        while before < n_tokens < len(file.tokens):
            before, n_tokens = n_tokens, self._driver.call(restore)
        return n_tokens


def _opened(path: Path) -> KvFile:
    try:
        return KvFile(path)
    except OSError as error:
        raise SessionError(f"{display(path)}: {error.strerror or error}") from None


def _check_tokens(file: KvFile, n_vocab: int) -> None:
    most = max(file.header.tokens, default=0)
    if most >= n_vocab:
        raise SessionError(f"{display(file.path)}: token id: found {most} (need below {n_vocab})")


def _messages_of(file: KvFile) -> tuple[dict[str, Any], ...]:
    text = file.header.conversation
    if not text:
        return ()
    try:
        messages = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{display(file.path)}: messages: {error}") from None
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise SessionError(f"{display(file.path)}: messages: found no list of messages")
    return tuple(messages)


def _check_replaceable(path: Path) -> None:
    """Raise SessionError if a file is there that is no session."""
    try:
        KvFile(path).close()
    except FileNotFoundError:
        return
    except (OSError, SessionError) as error:
        raise SessionError(
            f"{display(path)}: is there and is no session ({error}); choose another name"
        ) from None


def _write_beside(target: Path, header: Header, parts: Iterator[Bytes]) -> None:
    """Write a file next to its place and rename it when it is whole."""
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    try:
        remove(part)
        kv_file.write(part, header, parts)
        publish(part, target)
    except BaseException as error:
        remove(part)
        if isinstance(error, OSError):
            why = error.strerror or error
            raise SessionError(f"{display(target)}: cannot be written: {why}") from None
        raise
