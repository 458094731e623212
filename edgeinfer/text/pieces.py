"""Tell what bytes tokens stand for; each kind of tokenizer spells them its own way."""

from abc import ABC, abstractmethod

from edgeinfer.text.vocabulary import Vocabulary


class Pieces(ABC):
    """What tokenizers share that know a token's bytes by its spelling and type."""

    _vocabulary: Vocabulary

    def piece(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; control tokens stand for their spelling."""
        vocabulary = self._vocabulary
        return self._piece(token_id, vocabulary.text(token_id), int(vocabulary.types[token_id]))

    def pieces(self) -> list[bytes]:
        """Return the pieces of all tokens, by id."""
        texts, types = self._vocabulary.all_texts(), self._vocabulary.types.tolist()
        return [self._piece(*token) for token in zip(range(len(texts)), texts, types, strict=True)]

    @abstractmethod
    def _piece(self, token_id: int, raw: bytes, kind: int) -> bytes:
        """Return the bytes of a token spelled `raw`, of this type."""
