"""Encode by the likeliest way to cut a text into tokens (Unigram: T5, XLM-RoBERTa, bge-m3).

Goes in: the vocabulary with log probabilities as scores, and the table that normalizes characters.
Comes out: ids of plain text, bytes of ids. Knows nothing of special tokens.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ModelFormatError
from edgeinfer.text.library import built, ids_of
from edgeinfer.text.pieces import Pieces
from edgeinfer.text.vocabulary import TEXTUAL, TokenType, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

_MARK = "\u2581"


class UnigramEncoder(Pieces):
    """Likelihood-based encoder of `tokenizer.ggml.model` = t5."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        unknown_id: int | None,
        charsmap: npt.NDArray[np.uint8] | None,
        add_space_prefix: bool,
        remove_extra_whitespaces: bool,
    ) -> None:
        if vocabulary.scores is None:
            raise ModelFormatError(f"{vocabulary.where}: key 'tokenizer.ggml.scores': missing")
        if unknown_id is None:
            raise ModelFormatError(
                f"{vocabulary.where}: key 'tokenizer.ggml.unknown_token_id': missing "
                "(Unigram needs it)"
            )
        self._vocabulary = vocabulary
        self._unknown_id = unknown_id
        self._charsmap = charsmap
        self._add_space_prefix = add_space_prefix
        self._remove_extra_whitespaces = remove_extra_whitespaces
        self._bytes = vocabulary.byte_tokens()
        self._engine: Engine | None = None

    def prepare(self) -> None:
        """Build the library's table, the slow part; `encode` needs it."""
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
        from tokenizers.normalizers import Normalizer, Precompiled, Replace
        from tokenizers.pre_tokenizers import Metaspace, PreTokenizer, WhitespaceSplit

        engine = Tokenizer(
            models.Unigram(self._scored(), unk_id=self._unknown_id, byte_fallback=bool(self._bytes))
        )
        steps: list[Normalizer] = []
        cuts: list[PreTokenizer] = []
        if self._charsmap is not None:
            raw = self._charsmap.tobytes()
            where = f"{self._vocabulary.where}: key 'tokenizer.ggml.precompiled_charsmap'"
            steps.append(built(lambda: Precompiled(raw), where))
        if self._remove_extra_whitespaces:
            steps += [Replace(Regex("^ +| +$"), ""), Replace(Regex(" {2,}"), " ")]
            # Normalizing leaves one other kind of space, U+0085, which XLM-RoBERTa cuts at too.
            cuts = [WhitespaceSplit()] if self._charsmap is not None else []
        engine.normalizer = normalizers.Sequence(steps)
        scheme = "always" if self._add_space_prefix else "never"
        cuts.append(Metaspace(_MARK, prepend_scheme=scheme, split=True))
        engine.pre_tokenizer = pre_tokenizers.Sequence(cuts)
        self._engine = engine

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text."""
        assert self._engine is not None
        return ids_of(self._engine, text)

    def _piece(self, token_id: int, raw: bytes, kind: int) -> bytes:
        if token_id in self._bytes:
            return bytes([self._bytes[token_id]])
        return raw if kind in TEXTUAL else raw.replace(_MARK.encode(), b" ")

    def _scored(self) -> list[tuple[str, float]]:
        """Return tokens for the library; those that no text may become get names none has.

        A name with a space never matches, because spaces are marks by then; a score of 0 leaves
        alone what is derived from the lowest one.
        """
        vocabulary = self._vocabulary
        assert vocabulary.scores is not None
        plain = (TokenType.NORMAL, TokenType.BYTE)
        texts, types = vocabulary.strings.tolist(), vocabulary.types.tolist()
        return [
            (text, score) if kind in plain else (f" {token_id}", 0.0)
            for token_id, (text, kind, score) in enumerate(
                zip(texts, types, vocabulary.scores.tolist(), strict=True)
            )
        ]
