"""Encode with byte-pair merges: words cut by a pre-tokenizer, bytes merged by rank.

Goes in: the vocabulary, the merge list, a pre-tokenizer. Comes out: ids of plain text, bytes of
ids. Knows nothing of special tokens. The merging itself is done by the `tokenizers` library.
"""

from typing import TYPE_CHECKING, Any

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.strings import StringArray
from edgeinfer.text.library import ids_of
from edgeinfer.text.pieces import Pieces
from edgeinfer.text.pretokenizers import PreTokenizer
from edgeinfer.text.vocabulary import TEXTUAL, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_MARK = "\u2581"


def _byte_characters() -> dict[str, bytes]:
    """GPT-2's map of bytes to printable characters, inverted: the rest sit from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): bytes([byte]) for byte in printable} | {
        chr(0x100 + i): bytes([byte]) for i, byte in enumerate(rest)
    }


_BYTE_OF = _byte_characters()


class BpeEncoder(Pieces):
    """Merge-based encoder of `tokenizer.ggml.model` = gpt2."""

    def __init__(self, vocabulary: Vocabulary, merges: StringArray, pre: PreTokenizer) -> None:
        self._vocabulary = vocabulary
        self._merges = merges
        self._pre = pre
        self._bytes = vocabulary.byte_tokens() if pre.spaces_as_marks else {}
        self._engine: Engine | None = None

    def prepare(self) -> None:
        """Build the library's table, the slow part; `encode` needs it."""
        self._engine = _build(self._vocabulary, self._merges, self._pre)

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text.

        Some vocabularies lack tokens for bytes that are rare or no UTF-8 (SmolLM2: 0x04, 0xF1);
        such bytes are left out, as by every other implementation.
        """
        assert self._engine is not None
        if self._pre.spaces_as_marks:
            text = text.replace(" ", _MARK)
        return ids_of(self._engine, text)

    def _piece(self, token_id: int, raw: bytes, kind: int) -> bytes:
        if kind in TEXTUAL:
            return raw
        if token_id in self._bytes:
            return bytes([self._bytes[token_id]])
        if self._pre.spaces_as_marks:
            return raw.replace(_MARK.encode(), b" ")
        return b"".join(
            _BYTE_OF.get(character) or character.encode(errors="surrogateescape")
            for character in raw.decode(errors="surrogateescape")
        )


def _build(vocabulary: Vocabulary, merges: StringArray, pre: PreTokenizer) -> "Engine":
    from tokenizers import Regex, Tokenizer, models
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    texts = vocabulary.strings.tolist()
    ids = dict(zip(texts, range(len(texts)), strict=True))
    if len(ids) != len(texts):
        _refuse_duplicates(vocabulary, texts, ids)
    pairs = [tuple(merge.split(" ", 1)) for merge in merges.tolist()]
    try:
        model = _model(models, ids, pairs, pre)
    except Exception:
        model = _model(models, ids, _sound(pairs, ids, merges.where), pre)
    engine = Tokenizer(model)
    cuts: list[Split | ByteLevel] = [Split(Regex(regex), "isolated") for regex in pre.regexes]
    if not pre.spaces_as_marks:
        cuts.append(ByteLevel(add_prefix_space=False, use_regex=False))
    engine.pre_tokenizer = Sequence(cuts)
    return engine


def _model(
    models: Any, ids: dict[str, int], pairs: list[tuple[str, ...]], pre: PreTokenizer
) -> Any:
    return models.BPE(
        ids, pairs, ignore_merges=pre.ignore_merges, byte_fallback=pre.spaces_as_marks
    )


def _sound(pairs: list[tuple[str, ...]], ids: dict[str, int], where: str) -> list[tuple[str, ...]]:
    """Leave out merges of or into unknown pieces: they can never apply.

    Raises:
        ModelFormatError: a merge has no second half.
    """
    for index, pair in enumerate(pairs):
        if len(pair) != 2 or not pair[0] or not pair[1]:
            raise ModelFormatError(
                f"{where}: merge {index}: found {' '.join(pair)[:40]!r} "
                "(need two pieces with a space between)"
            )
    return [p for p in pairs if p[0] in ids and p[1] in ids and p[0] + p[1] in ids]


def _refuse_duplicates(vocabulary: Vocabulary, texts: list[str], ids: dict[str, int]) -> None:
    for token_id, text in enumerate(texts):
        if text and ids[text] != token_id:
            raise ModelFormatError(
                f"{vocabulary.where}: tokens {token_id} and {ids[text]}: found {text[:40]!r} "
                "twice (need different texts)"
            )
