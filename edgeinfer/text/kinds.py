"""Choose encoder and settings by `tokenizer.ggml.model`: what a tokenizer is put together from.

Goes in: metadata. Comes out: Parts. Knows each kind's defaults for what the file leaves out; they
are those of llama.cpp, whose converter writes the files.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.bpe import BpeEncoder
from edgeinfer.text.pretokenizers import pre_tokenizer
from edgeinfer.text.special import MARKER_NAMES, Strip, retype
from edgeinfer.text.spm import SpmEncoder
from edgeinfer.text.unigram import UnigramEncoder
from edgeinfer.text.vocabulary import (
    PREFIX,
    TokenType,
    Vocabulary,
    detached,
    read_vocabulary,
    role_id,
)
from edgeinfer.text.wordpiece import WordPieceEncoder


class Encoder(Protocol):
    """What a tokenizer needs of an encoder; see BpeEncoder."""

    def prepare(self) -> None: ...
    def encode(self, text: str) -> list[int]: ...
    def piece(self, token_id: int) -> bytes: ...
    def pieces(self) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class Frame:
    """What `add_special` puts around a text, and how texts begin.

    Attributes:
        bos_id, eos_id, sep_id, pad_id: None where the model has none.
        add_bos, add_eos, add_sep: whether they are added.
        leading_space: the encoder puts a space before the first word, so decoding takes it away.
    """

    bos_id: int | None
    eos_id: int | None
    sep_id: int | None
    pad_id: int | None
    add_bos: bool
    add_eos: bool
    add_sep: bool
    leading_space: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """All a Tokenizer is made of."""

    vocabulary: Vocabulary
    encoder: Encoder
    strip: Strip
    frame: Frame
    stop_ids: frozenset[int]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Defaults:
    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None
    sep_id: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    leading_space: bool = False


def read_parts(metadata: Metadata, where: str) -> Parts:
    """Return what the file's tokenizer is made of, the encoder's tables not yet built.

    Raises:
        ModelFormatError: the token table contradicts itself.
        UnsupportedModelError: the kind of tokenizer or of pre-tokenizer is unknown.
    """
    kind = metadata.text(PREFIX + "model")
    if kind not in _KINDS:
        raise UnsupportedModelError(
            f"{where}: key 'tokenizer.ggml.model': found {kind!r} (known: {', '.join(_KINDS)})"
        )
    vocabulary = read_vocabulary(metadata, where)
    warnings: list[str] = []
    eos_id = role_id(metadata, "eos", len(vocabulary), _ENDS.get(kind))
    roles = {
        eos_id,
        *(role_id(metadata, role, len(vocabulary), None) for role in ("eot", "eom")),
        *(role_id(metadata, role, len(vocabulary), None) for role in ("fim_pad", "fim_rep")),
        role_id(metadata, "fim_sep", len(vocabulary), None),
    }
    named = vocabulary.find(MARKER_NAMES)
    stop_ids = retype(vocabulary, named, {role for role in roles if role is not None})
    encoder, defaults = _KINDS[kind](metadata, vocabulary)
    return Parts(
        vocabulary,
        encoder,
        _strip_rule(metadata, vocabulary),
        _frame(metadata, len(vocabulary), defaults, eos_id, warnings),
        stop_ids,
        tuple(warnings),
    )


def _frame(
    metadata: Metadata, n_vocab: int, defaults: _Defaults, eos_id: int | None, warnings: list[str]
) -> Frame:
    bos_id = role_id(metadata, "bos", n_vocab, defaults.bos_id)
    # BERT files name [CLS] and [SEP]; the second key is misspelled in the format itself.
    bos_id = role_id(metadata, "cls", n_vocab, bos_id) if defaults.sep_id is not None else bos_id
    sep_id = role_id(metadata, "seperator", n_vocab, defaults.sep_id)
    try:
        pad_id = role_id(metadata, "padding", n_vocab, None)
    except ModelFormatError as error:
        pad_id = None
        warnings.append(f"{error}; padding is off")
    frame = Frame(
        bos_id,
        eos_id,
        sep_id,
        pad_id,
        add_bos=metadata.flag(PREFIX + "add_bos_token", defaults.add_bos),
        add_eos=metadata.flag(PREFIX + "add_eos_token", defaults.add_eos),
        add_sep=metadata.flag(PREFIX + "add_sep_token", defaults.add_sep),
        leading_space=defaults.leading_space,
    )
    for name, wanted, token_id in (
        ("bos", frame.add_bos, bos_id),
        ("eos", frame.add_eos, eos_id),
        ("sep", frame.add_sep, sep_id),
    ):
        if wanted and token_id is None:
            raise metadata.error(
                f"{PREFIX}add_{name}_token", f"found true, but no {name} token id is given"
            )
    return frame


def _bpe(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Encoder, _Defaults]:
    pre = pre_tokenizer(metadata.text(PREFIX + "pre", None), vocabulary.where)
    merges = detached(metadata.strings(PREFIX + "merges"))
    defaults = _Defaults(add_bos=pre.add_bos, add_sep=pre.add_sep)
    return BpeEncoder(vocabulary, merges, pre), defaults


def _gemma4(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Encoder, _Defaults]:
    pre = pre_tokenizer("gemma4", vocabulary.where)
    merges = detached(metadata.strings(PREFIX + "merges"))
    return BpeEncoder(vocabulary, merges, pre), _Defaults(add_bos=True)


def _spm(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Encoder, _Defaults]:
    space: bool = metadata.flag(PREFIX + "add_space_prefix", True)
    unknown_id = role_id(metadata, "unknown", len(vocabulary), None)
    encoder = SpmEncoder(vocabulary, unknown_id=unknown_id, add_space_prefix=space)
    defaults = _Defaults(bos_id=_SPM.bos_id, add_bos=True, leading_space=space)
    return encoder, defaults


def _wordpiece(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Encoder, _Defaults]:
    unknown_id = role_id(metadata, "unknown", len(vocabulary), _BERT.unknown_id)
    lowercase: bool = metadata.flag(PREFIX + "normalizer.lowercase", True)
    accents: bool = metadata.flag(PREFIX + "normalizer.strip_accents", lowercase)
    encoder = WordPieceEncoder(
        vocabulary, unknown_id=unknown_id, lowercase=lowercase, strip_accents=accents
    )
    return encoder, _BERT


def _unigram(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Encoder, _Defaults]:
    space: bool = metadata.flag(PREFIX + "add_space_prefix", True)
    charsmap = metadata.integers(PREFIX + "precompiled_charsmap", None)
    encoder = UnigramEncoder(
        vocabulary,
        unknown_id=role_id(metadata, "unknown", len(vocabulary), _T5.unknown_id),
        charsmap=None if charsmap is None else charsmap.astype(np.uint8),
        add_space_prefix=space,
        remove_extra_whitespaces=metadata.flag(PREFIX + "remove_extra_whitespaces", False),
    )
    return encoder, replace(_T5, leading_space=space)


_SPM = _Defaults(bos_id=1, eos_id=2, unknown_id=0)
_BERT = _Defaults(
    bos_id=101, unknown_id=100, sep_id=102, add_bos=True, add_sep=True, leading_space=True
)
_T5 = _Defaults(eos_id=1, unknown_id=2, add_eos=True)
_ENDS = {"llama": _SPM.eos_id, "t5": _T5.eos_id}
_KINDS: dict[str, Callable[[Metadata, Vocabulary], tuple[Encoder, _Defaults]]] = {
    "llama": _spm,
    "gpt2": _bpe,
    "bert": _wordpiece,
    "gemma4": _gemma4,
    "t5": _unigram,
}


def _strip_rule(metadata: Metadata, vocabulary: Vocabulary) -> Strip:
    """Return which special tokens swallow white space: GGUF does not say, the model's name does."""
    name = metadata.text("general.name", "").lower()
    pre = metadata.text(PREFIX + "pre", "")
    if "phi-3" in name or "phi3" in name:
        special = set(vocabulary.ids_of(TokenType.CONTROL, TokenType.USER_DEFINED))
        special |= set(vocabulary.ids_of(TokenType.UNKNOWN))
        keep = vocabulary.find((b"<unk>", b"<s>", b"<|endoftext|>"))
        return Strip(right=frozenset(special - set(keep.values())))
    if any(mark in pre for mark in ("jina-v2-de", "jina-v2-es", "jina-v2-code")):
        return Strip(left=frozenset(vocabulary.find((b"<mask>",)).values()))
    if "modern-bert" in name:
        return Strip(left=frozenset(vocabulary.find((b"[MASK]",)).values()))
    return Strip()
