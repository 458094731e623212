"""Encode by longest match inside words (WordPiece, the BERT family).

Goes in: the vocabulary. Comes out: ids of plain text, bytes of ids. Knows nothing of special
tokens. GGUF spells the start of a word "▁x" and its continuation "x" where BERT has "x" and "##x".
"""

from typing import TYPE_CHECKING

from edgeinfer.errors import ModelFormatError
from edgeinfer.text.library import ids_of
from edgeinfer.text.vocabulary import TEXTUAL, TokenType, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_MARK = "\u2581"


class WordPieceEncoder:
    """Longest-match encoder of `tokenizer.ggml.model` = bert."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        unknown_id: int | None,
        lowercase: bool,
        strip_accents: bool,
    ) -> None:
        if unknown_id is None:
            raise ModelFormatError(
                f"{vocabulary.where}: key 'tokenizer.ggml.unknown_token_id': missing "
                "(WordPiece needs it)"
            )
        self._vocabulary = vocabulary
        self._unknown_id = unknown_id
        self._lowercase = lowercase
        self._strip_accents = strip_accents
        self._engine: Engine | None = None

    def prepare(self) -> None:
        """Build the library's table, the slow part; `encode` needs it."""
        self._engine = _build(
            self._vocabulary, self._unknown_id, self._lowercase, self._strip_accents
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text."""
        assert self._engine is not None
        return ids_of(self._engine, text)

    def piece(self, token_id: int) -> bytes:
        """Return the bytes a token stands for: words carry a leading space."""
        vocabulary = self._vocabulary
        return _piece(vocabulary.text(token_id), int(vocabulary.types[token_id]))

    def pieces(self) -> list[bytes]:
        """Return the pieces of all tokens, by id."""
        texts, types = self._vocabulary.all_texts(), self._vocabulary.types.tolist()
        return [_piece(*token) for token in zip(texts, types, strict=True)]


def _piece(raw: bytes, kind: int) -> bytes:
    return raw if kind in TEXTUAL else raw.replace(_MARK.encode(), b" ")


def _build(
    vocabulary: Vocabulary, unknown_id: int, lowercase: bool, strip_accents: bool
) -> "Engine":
    from tokenizers import Tokenizer, models
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    texts = vocabulary.strings.tolist()
    ids: dict[str, int] = {}
    for token_id, text in enumerate(texts):
        if vocabulary.types[token_id] == TokenType.NORMAL:
            text = text[1:] if text.startswith(_MARK) else "##" + text
        ids.setdefault(text, token_id)
    unknown = next(text for text, token_id in ids.items() if token_id == unknown_id)
    # A word longer than this is one unknown token, as in BERT; the bound keeps time linear.
    model = models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=100)
    engine = Tokenizer(model)
    engine.normalizer = BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    engine.pre_tokenizer = BertPreTokenizer()
    return engine
