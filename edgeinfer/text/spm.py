"""Encode with scored merges (SentencePiece BPE): characters merged by score, unknown ones as bytes.

Goes in: the vocabulary. Comes out: ids of plain text, bytes of ids. Knows nothing of special
tokens. The merging is done by the `sentencepiece` library, which wants a serialized ModelProto.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.strings import StringArray
from edgeinfer.text.pieces import Pieces
from edgeinfer.text.vocabulary import TEXTUAL, TokenType, Vocabulary

_MARK = "\u2581"
_MARK_BYTES = _MARK.encode()
_MAX_PIECE_BYTES = 7999


class SpmEncoder(Pieces):
    """Score-based encoder of `tokenizer.ggml.model` = llama."""

    def __init__(
        self, vocabulary: Vocabulary, *, unknown_id: int | None, add_space_prefix: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._unknown_id = unknown_id
        self._prefix = " " if add_space_prefix else ""
        self._bytes = vocabulary.byte_tokens()
        self._id_of_byte = {byte: token_id for token_id, byte in self._bytes.items()}
        self._engine: Any = None

    def prepare(self) -> None:
        """Build the library's table, the slow part; `encode` needs it."""
        from sentencepiece import SentencePieceProcessor

        proto = model_proto(self._vocabulary, self._unknown_id, byte_fallback=bool(self._bytes))
        engine = SentencePieceProcessor()
        try:
            engine.LoadFromSerializedProto(proto)
        except (RuntimeError, OSError) as error:
            raise ModelFormatError(
                f"{self._vocabulary.where}: token table: sentencepiece refuses it: {error}"
            ) from None
        self._engine = engine

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text.

        A literal U+2581, the library's own spelling of a space, is encoded as its three bytes, so
        that it comes back as itself.
        """
        text = self._prefix + text
        if _MARK not in text or not self._bytes:
            ids: list[int] = self._engine.EncodeAsIds(text)
            return ids
        marks = [self._id_of_byte[byte] for byte in _MARK_BYTES]
        head, *rest = text.split(_MARK)
        out: list[int] = self._engine.EncodeAsIds(head)
        for part in rest:
            out += marks
            out += self._engine.EncodeAsIds(part)
        return out

    def _piece(self, token_id: int, raw: bytes, kind: int) -> bytes:
        if token_id in self._bytes:
            return bytes([self._bytes[token_id]])
        return raw if kind in TEXTUAL else raw.replace(_MARK_BYTES, b" ")


def model_proto(vocabulary: Vocabulary, unknown_id: int | None, *, byte_fallback: bool) -> bytes:
    """Serialize the table as SentencePiece's ModelProto.

    Layout (protobuf wire format): per token, field 1 holds piece = field 1, score = field 2 (f32)
    and type = field 3; then trainer_spec (2) with model_type = BPE and byte_fallback, and
    normalizer_spec (3) that changes nothing. Lengths are varints padded to four bytes, which is
    allowed and makes all frames alike, so that NumPy writes them in one go:

        0A LLLLLLLL 0A llllllll | text | 15 ssssssss 18 t
    """
    types, extra = _library_types(vocabulary, unknown_id, byte_fallback)
    texts = _library_texts(vocabulary.strings, types)
    scores = vocabulary.scores
    if scores is None:
        raise ModelFormatError(f"{vocabulary.where}: key 'tokenizer.ggml.scores': missing")
    frames = _frames(texts.buffer, texts.starts, texts.lengths, scores, types)
    trainer = b"\x18\x02" + (b"\x98\x02\x01" if byte_fallback else b"")
    normalizer = b"\x0a\x08identity\x18\x00\x20\x00\x28\x01"
    return b"".join(
        (
            frames.tobytes(),
            extra,
            b"\x12" + bytes([len(trainer)]) + trainer,
            b"\x1a" + bytes([len(normalizer)]) + normalizer,
        )
    )


def _library_types(
    vocabulary: Vocabulary, unknown_id: int | None, byte_fallback: bool
) -> tuple[npt.NDArray[np.uint8], bytes]:
    """Return the types for the library, which wants one UNKNOWN, and a frame for it if needed."""
    types = vocabulary.types.copy()
    # Cut out of texts before they come here.
    whole = (TokenType.UNKNOWN, TokenType.USER_DEFINED, TokenType.UNDEFINED)
    types[vocabulary.ids_of(*whole)] = TokenType.CONTROL
    if unknown_id is None:
        unknown_id = next(iter(vocabulary.ids_of(TokenType.UNKNOWN)), None)
    if unknown_id is not None:
        types[unknown_id] = TokenType.UNKNOWN
        return types, b""
    if byte_fallback:
        return types, b"\x0a\x0b\x0a\x07<no-unk\x18\x02"
    raise ModelFormatError(
        f"{vocabulary.where}: token table: found neither an unknown token nor byte tokens "
        "(need one of them, for characters that are no token)"
    )


def _library_texts(texts: StringArray, types: npt.NDArray[np.uint8]) -> StringArray:
    """Rename texts the library cannot take (not 1 to 7999 bytes) and keep them out of merges."""
    lengths = texts.lengths
    odd = np.flatnonzero((lengths == 0) | (lengths > _MAX_PIECE_BYTES))
    if not odd.size:
        return texts
    named = texts.tobytes_list()
    for token_id in odd.tolist():
        named[token_id] = b"\x01token %d" % token_id
    types[odd] = TokenType.CONTROL
    return StringArray.from_strings(named, where=texts.where)


def _frames(
    buffer: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    types: npt.NDArray[np.uint8],
) -> npt.NDArray[np.uint8]:
    n_tokens = len(lengths)
    frame = np.empty((n_tokens, 17), np.uint8)
    frame[:, 0] = frame[:, 5] = 0x0A
    frame[:, 1:5] = _varints(lengths + 12)
    frame[:, 6:10] = _varints(lengths)
    frame[:, 10] = 0x15
    frame[:, 11:15] = scores.astype("<f4").view(np.uint8).reshape(n_tokens, 4)
    frame[:, 15] = 0x18
    frame[:, 16] = types
    runs = np.empty((n_tokens, 3), np.int64)
    runs[:] = (10, 0, 7)
    runs[:, 1] = lengths
    is_text = np.repeat(np.tile([False, True, False], n_tokens), runs.reshape(-1))
    out = np.empty(len(is_text), np.uint8)
    out[~is_text] = frame.reshape(-1)
    lo, hi = int(starts[0]) - 8, int(starts[-1] + lengths[-1])
    from_text = np.repeat(np.tile([False, True], n_tokens), _interleave(8, lengths))
    out[is_text] = buffer[lo:hi][from_text]
    return out


def _interleave(gap: int, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    runs = np.full((len(lengths), 2), gap, np.int64)
    runs[:, 1] = lengths
    return runs.reshape(-1)


def _varints(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return each value in [0, 2**28) as four varint bytes, (n, 4)."""
    out = np.empty((len(values), 4), np.uint8)
    for byte, more in enumerate((0x80, 0x80, 0x80, 0)):
        out[:, byte] = (values >> (7 * byte)) & 0x7F | more
    return out
