"""Turn text into token ids and back for one model: the class users hold.

Goes in: a model file's metadata. Comes out: a Tokenizer. Knows the order of the steps: cut at
special tokens, encode what lies between, put BOS and EOS around; the encoders know the rest.
"""

import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgeinfer.errors import InvalidParameterError, TemplateError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.chat import ChatTemplate, template_from_metadata
from edgeinfer.text.kinds import Parts, read_parts
from edgeinfer.text.special import SpecialTokens

_NAMES = re.compile(r"\{(\w+)\}")


class Tokenizer:
    """Text to token ids and back; safe to use from several threads.

    The encoder's tables are built at the first use or by `prepare`, whichever comes first.
    """

    def __init__(self, parts: Parts, chat_template: ChatTemplate | None) -> None:
        self._parts = parts
        self._vocabulary = parts.vocabulary
        self._encoder = parts.encoder
        self._special_tokens: SpecialTokens | None = None
        self._frame = parts.frame
        self._chat_template = chat_template
        self._pieces: dict[int, bytes] = {}
        self._ready = False
        self._lock = threading.Lock()

    @property
    def n_vocab(self) -> int:
        """Number of tokens; ids are 0 to n_vocab - 1."""
        return len(self._vocabulary)

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, None if the model has none."""
        return self._frame.bos_id

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, None if the model has none."""
        return self._frame.eos_id

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, None if the model has none."""
        return self._frame.pad_id

    @property
    def add_bos(self) -> bool:
        """Whether `encode` begins texts with BOS when `add_special` is set."""
        return self._frame.add_bos

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation.

        These are the file's eos, eot and eom tokens, and every token spelled like a known marker
        of that kind: `<|im_end|>`, `<end_of_turn>`, `<|eot_id|>`, `<|endoftext|>` and so on.
        """
        return self._parts.stop_ids

    @property
    def leading_space(self) -> bool:
        """Whether the encoder begins a text with a space of its own, which decoding takes away."""
        return self._frame.leading_space

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template, None if the file has none."""
        return self._chat_template

    def with_chat_template(self, template: ChatTemplate | None) -> "Tokenizer":
        """Return this tokenizer with another chat template, or without one."""
        self.prepare()
        other = Tokenizer(self._parts, template)
        other._special_tokens = self._special_tokens
        other._ready = True
        return other

    def with_template_source(self, source: str) -> "Tokenizer":
        """Return this tokenizer with a chat template of this Jinja source."""
        bos, eos = (self._spelling(id) for id in (self.bos_id, self.eos_id))
        return self.with_chat_template(ChatTemplate(source, bos_token=bos, eos_token=eos))

    def _spelling(self, token_id: int | None) -> str:
        return "" if token_id is None else self._vocabulary.text(token_id).decode(errors="replace")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the file's tokenizer, but not fatal."""
        return self._parts.warnings

    def prepare(self) -> None:
        """Build the encoder's tables (0.05 to 0.9 s); does nothing the second time.

        Raises:
            ModelFormatError: the tables contradict themselves.
        """
        if self._ready:
            return
        with self._lock:
            if not self._ready:
                self._special_tokens = SpecialTokens(self._vocabulary, self._parts.strip)
                self._encoder.prepare()
                self._ready = True

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: any text without lone surrogates.
            add_special: add BOS, EOS or SEP where the model wants them.
            parse_special: take the spelling of control tokens (`<|im_end|>`) for the tokens. Leave
                it off for text that users wrote.

        Raises:
            InvalidParameterError: the text holds lone surrogates.
        """
        return self._framed(self._encode(text, parse_special, frozenset()), add_special)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        parse_content_special: bool = False,
        **variables: Any,
    ) -> list[int]:
        """Return the token ids of a conversation, laid out by the chat template.

        Control tokens are recognised where the template wrote them. Where a message spells one, it
        stays plain text, so that no message can end its turn, unless `parse_content_special`. BOS
        comes once, from the template or else from the model's settings.

        Args:
            messages: dicts with "role" and "content", as ChatTemplate.render takes them.
            add_generation_prompt: end with the opening of the assistant's turn.
            parse_content_special: recognise control tokens in the messages too.
            **variables: passed to the template (tools, enable_thinking, ...).

        Raises:
            TemplateError: the model has no template, or it is broken or refuses the messages.
            InvalidParameterError: a message is malformed; the error names it.
        """
        template = self._chat_template
        if template is None:
            raise TemplateError(
                f"{self._vocabulary.where}: the model has no chat template; "
                "it is perhaps a base model: use plain completion, or give a template"
            )
        options = {"add_generation_prompt": add_generation_prompt, **variables}
        if parse_content_special:
            text, barred = template.render(messages, **options), frozenset[int]()
        else:
            text, barred = template.render_marked(messages, self._special.control_starts, **options)
        ids = self._encode(text, True, barred)
        bos_id = self._frame.bos_id
        if self._frame.add_bos and bos_id is not None and ids[:1] != [bos_id]:
            ids.insert(0, bos_id)
        return ids

    def encode_within(self, text: str, most: int) -> list[int]:
        """Return the ids of a text with what the model wants around it, its end cut to fit `most`.

        Raises InvalidParameterError where not even one token of the text fits.
        """
        ids = self._encode(text, False, frozenset())
        return self._framed(ids[: _room(most, len(self._framed([], True)))], True)

    def encode_pair(self, first: str, second: str, *, most: int | None = None) -> list[int]:
        """Return the ids of two texts as encoders that compare them were trained on: each with the
        token that ends a text, and where that is "</s>" one more between them.

        Args:
            most: cut the end of the second text so that all are at most so many.

        Raises:
            InvalidParameterError: a text holds lone surrogates, or the first leaves no room.
        """
        before, after = self._around()
        between = after * 2 if [self._spelling(id) for id in after] == ["</s>"] else after
        head = [*before, *self._encode(first, False, frozenset()), *between]
        ids = self._encode(second, False, frozenset())
        if most is not None:
            ids = ids[: _room(most, len(head) + len(after))]
        return [*head, *ids, *after]

    def encode_filled(self, template: str, parts: Mapping[str, str]) -> list[int]:
        """Return the ids of a text in which `{name}` stands for each part.

        Control tokens are recognised where the template spells them, and not in the parts.
        """
        text, barred, at = "", set[int](), 0
        for found in _NAMES.finditer(template):
            if found[1] in parts:
                text += template[at : found.start()]
                part = parts[found[1]]
                barred |= {len(text) + start for start in self._special.control_starts(part)}
                text, at = text + part, found.end()
        ids = self._encode(text + template[at:], True, frozenset(barred))
        return [*self._around()[0], *ids]

    def decode(self, ids: Iterable[int], *, special: bool = True, at_start: bool = True) -> str:
        """Return the text of token ids; bytes that are no UTF-8 become U+FFFD.

        Args:
            ids: token ids, each in [0, n_vocab).
            special: spell out control tokens; otherwise they are left out.
            at_start: the ids begin a text. Set it False for the continuation of another: the space
                before its first word then belongs to the text.

        Raises:
            InvalidParameterError: an id is out of range.
        """
        joiner = PieceJoiner(self, skip_special=not special, at_start=at_start)
        return b"".join(joiner.push(token_id) for token_id in ids).decode(errors="replace")

    def piece(self, token_id: int) -> bytes:
        """Return the bytes one token stands for; not always whole characters.

        Raises:
            InvalidParameterError: the id is out of range.
        """
        piece = self._pieces.get(token_id)
        if piece is None or isinstance(token_id, bool):
            self._pieces[token_id] = piece = self._encoder.piece(self._checked(token_id))
        return piece

    def pieces(self) -> list[bytes]:
        """Return what `piece` returns for each id, faster than one by one."""
        return self._encoder.pieces()

    def is_control(self, token_id: int) -> bool:
        """Return whether a token stands for no text (BOS, turn markers, unknown)."""
        return token_id in self._special.controls

    @property
    def _special(self) -> SpecialTokens:
        self.prepare()
        assert self._special_tokens is not None
        return self._special_tokens

    def _checked(self, token_id: int) -> int:
        if hasattr(token_id, "__index__") and not isinstance(token_id, bool):
            index = token_id.__index__()
            if 0 <= index < self.n_vocab:
                return index
        raise InvalidParameterError(
            f"token id: found {token_id!r} (allowed 0 to {self.n_vocab - 1})"
        )

    def _encode(self, text: str, parse_special: bool, barred: frozenset[int]) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidParameterError(
                f"text: character {error.start}: found the lone surrogate "
                f"U+{ord(text[error.start]):04X} (need valid Unicode)"
            ) from None
        self.prepare()
        ids: list[int] = []
        for part in self._special.split(text, parse_special, barred):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encoder.encode(part)
        return ids

    def _framed(self, ids: list[int], add_special: bool) -> list[int]:
        if not add_special:
            return ids
        before, after = self._around()
        return [*before, *ids, *after]

    def _around(self) -> tuple[list[int], list[int]]:
        """Return what the model wants before and after a text."""
        frame = self._frame
        before = [frame.bos_id] if frame.add_bos and frame.bos_id is not None else []
        after = [frame.eos_id] if frame.add_eos and frame.eos_id is not None else []
        if frame.add_sep and frame.sep_id is not None:
            after.append(frame.sep_id)
        return before, after


def _room(most: int, n_taken: int) -> int:
    if n_taken >= most:
        raise InvalidParameterError(
            f"text: found {n_taken} tokens around it (need fewer than {most}, the most of all)"
        )
    return most - n_taken


class PieceJoiner:
    """Give each token's bytes within a text: what is skipped, which space is the encoder's own."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool, at_start: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._drop_space = at_start and tokenizer.leading_space

    def push(self, token_id: int) -> bytes:
        """Return the bytes this token adds."""
        piece = self._tokenizer.piece(token_id)
        if self._tokenizer.is_control(token_id):
            # The encoder begins anew after a control token, with a space of its own.
            self._drop_space = self._tokenizer.leading_space
            return b"" if self._skip_special else piece
        if self._drop_space and piece:
            self._drop_space = False
            return piece.removeprefix(b" ")
        return piece


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a GGUF file, which may hold a vocabulary only.

    Raises:
        ModelFormatError: the file or its token table is broken.
        UnsupportedModelError: the kind of tokenizer is unknown.
    """
    with open_gguf(path) as file:
        tokenizer = tokenizer_from_metadata(file.metadata, where=str(path))
        tokenizer.prepare()
    return tokenizer


def tokenizer_from_metadata(metadata: Metadata, *, where: str) -> Tokenizer:
    """Return the tokenizer that a file's metadata describes; it keeps no hold on the file.

    The encoder's tables are not yet built: `Tokenizer.prepare` does that, in a thread beside the
    loading of weights if you like, and finds the faults that only building shows.

    Raises:
        ModelFormatError: the token table contradicts itself.
        UnsupportedModelError: the kind of tokenizer or of pre-tokenizer is unknown.
    """
    parts = read_parts(metadata, where)
    vocabulary, frame = parts.vocabulary, parts.frame

    def spelling(token_id: int | None) -> str:
        return "" if token_id is None else vocabulary.text(token_id).decode(errors="replace")

    template = template_from_metadata(
        metadata, where, bos_token=spelling(frame.bos_id), eos_token=spelling(frame.eos_id)
    )
    return Tokenizer(parts, template)
