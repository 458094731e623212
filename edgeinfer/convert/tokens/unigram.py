"""Make the token table of a file of Unigram from a tokenizer.json (XLM-RoBERTa, bge-m3, e5, T5)."""

import base64
import binascii
from typing import Any

import numpy as np

from edgeinfer.convert.keys import Keys, counts, flag, numbers, raw_bytes, text, texts
from edgeinfer.convert.strict_json import Object
from edgeinfer.convert.tokens.table import TokenTable, adds_space, model_of, parts_of, uses
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX, TokenType

NORMALIZERS = ("Precompiled", "Strip", "Replace")
PRE_TOKENIZERS = ("WhitespaceSplit", "Metaspace")


def unigram_keys(raw: Object, table: TokenTable, where: str) -> Keys:
    """Return the keys of the token table.

    Raises UnsupportedModelError for a normalizer or pre-tokenizer that no key can say,
    ModelFormatError if the table that normalizes characters is damaged.
    """
    model = model_of(raw, where)
    normalizer = raw.get("normalizer")
    _expect(normalizer, "normalizer", NORMALIZERS, where)
    _expect(raw.get("pre_tokenizer"), "pre_tokenizer", PRE_TOKENIZERS, where)
    if not isinstance(model["vocab"], list):
        raise ModelFormatError(f"{where}: model.vocab: found ids (need scores)")
    if model.get("byte_fallback"):
        raise UnsupportedModelError(
            f"{where}: model.byte_fallback: found true (need false): readers of a file take no "
            "bytes in Unigram"
        )
    scores = dict(model["vocab"])
    types = list(table.types)
    if type(model.get("unk_id")) is int and 0 <= model["unk_id"] < len(types):
        types[model["unk_id"]] = TokenType.UNKNOWN
    keys = [
        text(PREFIX + "model", "t5"),
        text(PREFIX + "pre", "default"),
        texts(PREFIX + "tokens", table.tokens),
        counts(PREFIX + "token_type", types),
        numbers(PREFIX + "scores", [scores.get(token, 0.0) for token in table.tokens]),
        flag(PREFIX + "add_space_prefix", adds_space(raw)),
        flag(
            PREFIX + "remove_extra_whitespaces",
            uses(raw.get("pre_tokenizer"), "WhitespaceSplit") or uses(normalizer, "Replace"),
        ),
    ]
    for one in parts_of(normalizer):
        if one.get("type") == "Precompiled":
            keys.append(raw_bytes(PREFIX + "precompiled_charsmap", _decoded(one, where)))
    return keys


def _expect(found: Any, name: str, kinds: tuple[str, ...], where: str) -> None:
    for part in parts_of(found):
        if part.get("type") not in kinds:
            raise UnsupportedModelError(
                f"{where}: {name}: found {quote(str(part.get('type')))} (need {', '.join(kinds)}): "
                "a GGUF file has no form for another"
            )


def _decoded(part: Object, where: str) -> Any:
    try:
        found = base64.b64decode(part.get("precompiled_charsmap", ""), validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ModelFormatError(
            f"{where}: normalizer.precompiled_charsmap: not base64; the file is damaged"
        ) from None
    return np.frombuffer(found, np.uint8)
