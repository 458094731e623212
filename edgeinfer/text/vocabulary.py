"""Read the token table of a model file: texts, types, scores, the ids with a role.

Knows what the table says and whether it is sound; knows no algorithm that uses it. Texts are kept
as the bytes of the file and cut out one by one where asked for: a quarter of a million of them
would cost more time than all else at start-up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError, ModelFormatError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray

PREFIX = "tokenizer.ggml."
_BYTE_TOKEN = re.compile(rb"<0x([0-9A-Fa-f]{2})>\Z")


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` values of the GGUF format."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens of these types stand for their own spelling, never for bytes spelled in code.
TEXTUAL = (TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The token table.

    Attributes:
        where: the file, for messages.
        strings: token texts; string i is token i.
        types: (n_vocab,) uint8 of TokenType; written to only while the table is made.
        scores: (n_vocab,) float32 merge scores, None if the file has none.
    """

    where: str
    strings: StringArray
    types: npt.NDArray[np.uint8]
    scores: npt.NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.strings)

    def text(self, token_id: int) -> bytes:
        """Return a token's text as the file spells it.

        Raises:
            InvalidParameterError: the id is not in [0, n_vocab).
        """
        if not 0 <= token_id < len(self.strings):
            raise InvalidParameterError(
                f"token id: found {token_id} (allowed 0 to {len(self.strings) - 1})"
            )
        return self.strings.bytes_at(token_id)

    def texts(self, ids: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Return the texts of several tokens; ids (n,), each in [0, n_vocab)."""
        begins = self.strings.starts[ids]
        ends = begins + self.strings.lengths[ids]
        buffer = self.strings.buffer.data
        return [bytes(buffer[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]

    def all_texts(self) -> list[bytes]:
        """Return the texts of all tokens, by id."""
        return self.texts(np.arange(len(self)))

    def find(self, texts: Iterable[bytes]) -> dict[bytes, int]:
        """Return the ids of those of a few texts that are tokens, without a table of all."""
        wanted = {text for text in texts if text}
        if not wanted:
            return {}
        keys = np.array(
            sorted(
                (len(text) << 24) | (text[0] << 16) | (text[min(1, len(text) - 1)] << 8) | text[-1]
                for text in wanted
            ),
            np.int64,
        )
        # np.isin would import numpy.ma, which costs more than all of this.
        known = self._keys()
        likely = np.flatnonzero(keys[np.searchsorted(keys[:-1], known)] == known)
        found: dict[bytes, int] = {}
        for token_id, text in zip(likely.tolist(), self.texts(likely), strict=True):
            if text in wanted:
                found.setdefault(text, token_id)
        return found

    def _keys(self) -> npt.NDArray[np.int64]:
        """Return length, first, second and last byte of each text as one number, (n_vocab,)."""
        buffer, starts, lengths = self.strings.buffer, self.strings.starts, self.strings.lengths
        keys = lengths << 24
        # An empty text has no bytes to read; its key, of length 0, is nobody's.
        starts = np.minimum(starts, len(buffer) - 1)
        ends = np.maximum(lengths - 1, 0)
        for shift, offset in ((16, 0), (8, np.minimum(ends, 1)), (0, ends)):
            keys |= buffer[starts + offset].astype(np.int64) << shift
        return keys

    def ids_of(self, *types: TokenType) -> list[int]:
        """Return the ids of the tokens of these types, ascending."""
        wanted = np.zeros(256, np.bool_)
        wanted[list(types)] = True
        ids: list[int] = np.flatnonzero(wanted[self.types]).tolist()
        return ids

    def byte_tokens(self) -> dict[int, int]:
        """Return token id -> byte value of the BYTE tokens, `<0x00>` to `<0xFF>`.

        Raises:
            ModelFormatError: one is spelled otherwise, or some of the 256 are missing or double.
        """
        values: dict[int, int] = {}
        ids = self.ids_of(TokenType.BYTE)
        for token_id, text in zip(ids, self.texts(np.array(ids, np.int64)), strict=True):
            match = _BYTE_TOKEN.match(text)
            if match is None:
                raise ModelFormatError(
                    f"{self.where}: byte token {token_id}: found {text[:40]!r} "
                    "(need '<0x00>' to '<0xFF>')"
                )
            values[token_id] = int(match[1], 16)
        if values and (len(values) != 256 or len(set(values.values())) != 256):
            raise ModelFormatError(
                f"{self.where}: byte tokens: found {len(set(values.values()))} different ones in "
                f"{len(values)} (need 256)"
            )
        return values


def read_vocabulary(metadata: Metadata, where: str) -> Vocabulary:
    """Read the token table.

    Raises:
        ModelFormatError: tokens are missing, or the arrays disagree in length or element type.
    """
    strings = metadata.strings(PREFIX + "tokens")
    n_vocab = len(strings)
    if n_vocab == 0:
        raise metadata.error(PREFIX + "tokens", "found no tokens (need at least 1)")
    types = np.full(n_vocab, TokenType.NORMAL, np.uint8)
    if (raw_types := metadata.integers(PREFIX + "token_type", None)) is not None:
        _check_length(metadata, "token_type", raw_types, n_vocab)
        if raw_types.min() < 0 or raw_types.max() > max(TokenType):
            raise metadata.error(
                PREFIX + "token_type",
                f"found types {raw_types.min()} to {raw_types.max()} (allowed 0 to 6)",
            )
        types[:] = raw_types
    scores = None
    if (raw_scores := metadata.numbers(PREFIX + "scores", None)) is not None:
        _check_length(metadata, "scores", raw_scores, n_vocab)
        scores = raw_scores.astype(np.float32)
        if not np.isfinite(scores).all():
            raise metadata.error(PREFIX + "scores", "found NaN or infinity (need finite scores)")
    return Vocabulary(where, detached(strings), types, scores)


def _check_length(metadata: Metadata, key: str, values: npt.NDArray[Any], n_vocab: int) -> None:
    if len(values) != n_vocab:
        raise metadata.error(
            PREFIX + key, f"found {len(values)} values (need {n_vocab}, one a token)"
        )


def detached(strings: StringArray) -> StringArray:
    """Copy the texts (5 MB at most in practice): they outlive the file, changed or closed."""
    starts, lengths = strings.starts, strings.lengths
    if not len(starts):
        return StringArray.from_strings([], where=strings.where)
    lo, hi = int(starts[0]) - 8, int(starts[-1] + lengths[-1])
    bounds = np.append(starts - 8, hi) - lo
    return StringArray(strings.buffer[lo:hi].copy(), bounds, where=strings.where)


def role_id(metadata: Metadata, role: str, n_vocab: int, default: int | None) -> int | None:
    """Return the id of the token with a role ("bos", "eos", ...); `default` if not in the file.

    Raises:
        ModelFormatError: the id is not an integer in [0, n_vocab).
    """
    found: int | None = metadata.integer(
        f"{PREFIX}{role}_token_id", None, least=0, most=n_vocab - 1
    )
    if found is None and default is not None and default < n_vocab:
        return default
    return found
