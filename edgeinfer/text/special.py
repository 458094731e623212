"""Know the tokens that stand for no text: which they are, where they occur in a text.

Goes in: a vocabulary, a text. Comes out: which ids end a generation, and the text cut at the
tokens that must not be taken apart. Knows nothing of how the pieces between are encoded.
"""

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import numpy as np

from edgeinfer.text.vocabulary import TokenType, Vocabulary

# Converters often leave these NORMAL or USER_DEFINED. A token so spelled is a control token all the
# same: as plain text it would never end a turn, and user text that spells it would.
_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)
_END_OF_GENERATION = (
    *_END_OF_TURN,
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
)
_INFILL_STOPS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_INFILL = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
    *("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    *("<|prefix|>", "<|suffix|>", "<|middle|>"),
)
# gpt-oss writes its channels with these; callers need to see them in the text.
_VISIBLE = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

MARKER_NAMES = frozenset(
    name.encode()
    for name in (
        *_END_OF_GENERATION,
        *_INFILL,
        *_VISIBLE,
        *(name for names in _INFILL_STOPS.values() for name in names),
    )
)


def retype(vocabulary: Vocabulary, named: dict[bytes, int], roles: set[int]) -> frozenset[int]:
    """Give control-looking tokens their type; return the ids that end a generation.

    Args:
        vocabulary: its `types` are corrected in place.
        named: those of MARKER_NAMES that are tokens, with their ids.
        roles: ids the file declares as eos, eot, eom and infill separators.

    Source of the rule: what llama.cpp's vocabulary loader does, so that both see the same tokens.
    """
    ids = {name.decode(): token_id for name, token_id in named.items()}
    stops = roles | {ids[name] for name in _END_OF_GENERATION if name in ids}
    for names in _INFILL_STOPS.values():
        stops.update([ids[name] for name in names if name in ids][:1])
    control = {ids[name] for name in _INFILL if name in ids}
    for token_id in control | (stops - roles):
        vocabulary.types[token_id] = TokenType.CONTROL
    for name in _VISIBLE:
        if name in ids:
            vocabulary.types[ids[name]] = TokenType.USER_DEFINED
    # In the harmony format <|end|> ends a message, not the generation.
    if "<|end|>" in ids and (
        {"<|return|>", "<|call|>"} <= ids.keys()
        or ("<|flush|>" in ids and ids.keys() & {"<|call|>", "<|calls|>"})
    ):
        stops.discard(ids["<|end|>"])
        vocabulary.types[ids["<|end|>"]] = TokenType.USER_DEFINED
    # Gemma 4 has a token "</s>" that is an HTML tag.
    if {"<|tool_response>", "</s>"} <= ids.keys():
        stops.discard(ids["</s>"])
        vocabulary.types[ids["</s>"]] = TokenType.NORMAL
    return frozenset(stops)


@dataclass(frozen=True, slots=True)
class Strip:
    """Ids of special tokens that swallow the white space before (left) or after (right) them."""

    left: frozenset[int] = frozenset()
    right: frozenset[int] = frozenset()


class SpecialTokens:
    """Cut texts at special tokens. Read-only after construction."""

    def __init__(self, vocabulary: Vocabulary, strip: Strip) -> None:
        self._ids: dict[str, int] = {}
        self._strip = strip
        ids = vocabulary.ids_of(TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED)
        texts = vocabulary.texts(np.array(ids, np.int64))
        for token_id, raw in zip(ids, texts, strict=True):
            text = raw.decode(errors="surrogateescape")
            if text:
                self._ids.setdefault(text, token_id)
        always = set(vocabulary.ids_of(TokenType.USER_DEFINED))
        self._always = frozenset(text for text, id_ in self._ids.items() if id_ in always)
        self.controls = frozenset(ids) - always
        # Two characters, nearly always different from what follows in plain text, decide whether
        # lengths are tried at all: a megabyte of "<" stays linear.
        self._lengths: dict[str, list[int]] = {}
        for text in self._ids:
            lengths = self._lengths.setdefault(text[:2], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        first = "".join(sorted(map(re.escape, {text[0] for text in self._ids})))
        self._first = re.compile(f"[{first}]" if first else r"(?!)")

    def split(
        self, text: str, parse_special: bool, barred: Container[int] = frozenset()
    ) -> Iterator[str | int]:
        """Yield the text's pieces in order: plain text as str, special tokens as ids.

        Args:
            text: what to cut.
            parse_special: whether control and unknown tokens count; user-defined ones always do.
            barred: positions in `text` at which no control token may begin.
        """
        begin = 0
        for start, end, token_id in self._matches(text, parse_special, barred):
            plain = text[begin:start]
            if token_id in self._strip.left:
                plain = plain.rstrip()
            if plain:
                yield plain
            yield token_id
            begin = end
            if token_id in self._strip.right:
                while begin < len(text) and text[begin].isspace():
                    begin += 1
        if begin < len(text):
            yield text[begin:]

    def control_starts(self, text: str) -> list[int]:
        """Return the positions at which a control token's text begins."""
        longest = self._longest(text, lambda name: name not in self._always)
        return [at for at in self._candidates(text) if longest(at) is not None]

    def _matches(
        self, text: str, parse_special: bool, barred: Container[int]
    ) -> Iterator[tuple[int, int, int]]:
        if parse_special:
            longest = self._longest(text, lambda name: True)
        elif not self._always:
            return
        plain = self._longest(text, self._always.__contains__)
        position = 0
        for at in self._candidates(text):
            if at < position:
                continue
            found = longest(at) if parse_special and at not in barred else plain(at)
            if found is not None:
                position = at + len(found)
                yield at, position, self._ids[found]

    def _longest(self, text: str, allowed: Callable[[str], bool]) -> Callable[[int], str | None]:
        ids, by_prefix = self._ids, self._lengths

        def longest(at: int) -> str | None:
            for prefix in (text[at : at + 2], text[at]):
                for length in by_prefix.get(prefix, ()):
                    name = text[at : at + length]
                    if name in ids and allowed(name):
                        return name
            return None

        return longest

    def _candidates(self, text: str) -> Iterator[int]:
        """Yield ascending positions whose character begins some special token."""
        return (match.start() for match in self._first.finditer(text))
