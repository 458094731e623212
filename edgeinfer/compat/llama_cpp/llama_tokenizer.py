"""Tokenize as llama-cpp-python does: bytes to ids and back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError, LlamaValueError, translated
from edgeinfer.text.tokenizer import PieceJoiner, Tokenizer

if TYPE_CHECKING:
    from edgeinfer.compat.llama_cpp.llama import Llama


class BaseLlamaTokenizer:
    """What `Llama(tokenizer=...)` takes."""

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the ids of a text in UTF-8."""
        raise NotImplementedError

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the bytes of ids."""
        raise NotImplementedError


class LlamaTokenizer(BaseLlamaTokenizer):
    """The tokenizer of the model's file."""

    def __init__(self, llama: "Llama | Tokenizer") -> None:
        self._tokenizer = llama if isinstance(llama, Tokenizer) else llama.edgeinfer.tokenizer

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the ids of a text in UTF-8; `special` takes spelled control tokens for tokens."""
        try:
            decoded = text.decode() if isinstance(text, bytes) else str(text)
        except UnicodeDecodeError as error:
            raise LlamaValueError(
                f"text: byte {error.start}: found no UTF-8 (need UTF-8)"
            ) from error
        with translated():
            return self._tokenizer.encode(decoded, add_special=add_bos, parse_special=special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the bytes of ids, which may end within a character."""
        joiner = PieceJoiner(self._tokenizer, skip_special=not special, at_start=False)
        with translated():
            return b"".join(joiner.push(int(token)) for token in tokens)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the ids of a text."""
        return self.tokenize(text.encode("utf-8"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of ids without what is no UTF-8."""
        return self.detokenize(tokens).decode("utf-8", errors="ignore")


class LlamaHFTokenizer(BaseLlamaTokenizer):
    """A tokenizer of Hugging Face's library, which edgeinfer does without."""

    def __init__(self, hf_tokenizer: Any) -> None:
        raise LlamaUnsupportedError(
            "LlamaHFTokenizer: found one (need none): edgeinfer reads the tokenizer in the model's "
            "file, which it tests against Hugging Face's; leave `tokenizer` out"
        )

    @classmethod
    def from_pretrained(cls, path: str) -> "LlamaHFTokenizer":
        """Raise LlamaUnsupportedError."""
        return cls(path)
