"""Read a tokenizer.model of SentencePiece: its pieces and the settings that change ids.

A file is a ModelProto in protobuf's wire format: field 1, repeated, is a piece (1 text, 2 score,
3 type), 2 the trainer's settings, 3 the normalizer's. Knows nothing of transformers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from edgeinfer.loader.mapped import display
from edgeinfer.text.vocabulary import TokenType

MAX_BYTES = 256 << 20  # the largest there is has 5 MB
MAX_PIECES = 1 << 24
UNIGRAM, BPE = 1, 2
KINDS = {UNIGRAM: "Unigram", BPE: "BPE"}
_VARINT, _WIDE, _BYTES, _NARROW = 0, 1, 2, 5
_NORMAL = 1

Value = int | bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A token: `kind` has the numbers that GGUF took over."""

    text: str
    score: float
    kind: TokenType


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a tokenizer.model says; ids of roles are None where it has none."""

    pieces: list[Piece]
    kind: str
    byte_fallback: bool
    roles: dict[str, int]
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a file.

    Raises ModelNotFoundError if it cannot be read, ModelFormatError if it is damaged,
    UnsupportedModelError if it is neither BPE nor Unigram.
    """
    where = display(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelNotFoundError(f"{where}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise ModelFormatError(f"{where}: found more than {MAX_BYTES} bytes")
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(raw, where):
        if number == 1:
            pieces.append(_piece(dict(_fields(_bytes(value, where), where)), len(pieces), where))
        elif number in (2, 3):
            part = trainer if number == 2 else normalizer
            part.update(_fields(_bytes(value, where), where))
    if not 0 < len(pieces) <= MAX_PIECES:
        raise ModelFormatError(f"{where}: found {len(pieces)} pieces (need 1 to {MAX_PIECES})")
    kind = _number(trainer.get(3, UNIGRAM), where)
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{where}: model_type: found {kind} (need 1, Unigram, or 2, BPE)"
        )
    defaults = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}
    ids = {role: _signed(trainer.get(at, by), where) for role, (at, by) in defaults.items()}
    return SentencePieceModel(
        pieces,
        KINDS[kind],
        byte_fallback=bool(_number(trainer.get(35, 0), where)),
        roles={role: token_id for role, token_id in ids.items() if 0 <= token_id < len(pieces)},
        charsmap=_bytes(normalizer.get(2, b""), where),
        add_dummy_prefix=bool(_number(normalizer.get(3, 1), where)),
        remove_extra_whitespaces=bool(_number(normalizer.get(4, 1), where)),
    )


def _piece(fields: dict[int, Value], index: int, where: str) -> Piece:
    where = f"{where}: piece {index}"
    score = fields.get(2, b"\0\0\0\0")
    kind = _number(fields.get(3, _NORMAL), where)
    try:
        text = _bytes(fields.get(1, b""), where).decode()
        (number,) = struct.unpack("<f", _bytes(score, where))
        return Piece(text, number, TokenType(kind))
    except (UnicodeDecodeError, struct.error, ValueError) as error:
        raise ModelFormatError(f"{where}: {error}; the file is damaged") from None


def _fields(raw: bytes, where: str) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field: an integer, or bytes."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at, where)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(raw, at, where)
            yield number, value
            continue
        sizes = {_WIDE: 8, _NARROW: 4}
        if wire == _BYTES:
            n_bytes, at = _varint(raw, at, where)
        elif wire in sizes:
            n_bytes = sizes[wire]
        else:
            raise ModelFormatError(
                f"{where}: byte {at}: found wire type {wire} (need 0, 1, 2 or 5); the file is "
                "damaged, or no SentencePiece model"
            )
        if n_bytes > len(raw) - at:
            raise ModelFormatError(
                f"{where}: byte {at}: found a field of {n_bytes} bytes (need at most "
                f"{len(raw) - at}); the file is truncated"
            )
        yield number, raw[at : at + n_bytes]
        at += n_bytes


def _varint(raw: bytes, at: int, where: str) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = 0
    for i, byte in enumerate(raw[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    raise ModelFormatError(f"{where}: byte {at}: found no end of a number; the file is damaged")


def _number(value: Value, where: str) -> int:
    if isinstance(value, int):
        return value
    raise ModelFormatError(f"{where}: found {len(value)} bytes (need a number)")


def _signed(value: Value, where: str) -> int:
    found = _number(value, where)
    return found - (1 << 64) if found >> 63 else found


def _bytes(value: Value, where: str) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ModelFormatError(f"{where}: found the number {value} (need bytes)")
