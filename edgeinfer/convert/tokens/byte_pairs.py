"""Make the token table of a file of BPE from a tokenizer.json.

Knows its two kinds: over bytes written as letters (GPT-2), and over characters with U+2581
for spaces and tokens <0x00> to <0xFF> for what no token covers (SentencePiece).
"""

import re
from collections.abc import Mapping
from typing import Any

from edgeinfer.convert.keys import Keys, counts, flag, numbers, text, texts
from edgeinfer.convert.strict_json import Object
from edgeinfer.convert.tokens.pre_tokenizer import name_of
from edgeinfer.convert.tokens.table import MARK, TokenTable, adds_space, model_of, parts_of, uses
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX, TokenType

NO_MERGE = -1e9  # the score of tokens that no merge makes
BYTE = re.compile("<0x[0-9A-F]{2}>")

Scores = Mapping[str, float]


def byte_pair_keys(raw: Object, table: TokenTable, where: str, scores: Scores | None) -> Keys:
    """Return the keys of the token table; `scores` are those of a tokenizer.model, if there is one.

    Raises ModelFormatError, or UnsupportedModelError for a BPE of neither kind.
    """
    model = model_of(raw, where)
    merges = _merges(model, where)
    if uses(raw.get("pre_tokenizer"), "ByteLevel"):
        return _byte_level(raw, table, merges, where)
    if model.get("byte_fallback") or MARK in str(raw.get("normalizer")):
        return _spaces_marked(raw, table, merges, scores, where)
    raise UnsupportedModelError(
        f"{where}: found BPE neither over bytes nor with U+2581 for spaces (need one of them)"
    )


def _byte_level(raw: Object, table: TokenTable, merges: list[str], where: str) -> Keys:
    ignore_merges = bool(raw["model"].get("ignore_merges"))
    normalizer = raw.get("normalizer")
    if normalizer is not None and not _is_harmless(normalizer):
        raise UnsupportedModelError(
            f"{where}: normalizer: found {quote(str(normalizer))} (need none, or NFC)"
        )
    return [
        text(PREFIX + "model", "gpt2"),
        text(
            PREFIX + "pre",
            name_of(raw.get("pre_tokenizer"), ignore_merges=ignore_merges, where=where),
        ),
        texts(PREFIX + "tokens", table.tokens),
        counts(PREFIX + "token_type", table.types),
        texts(PREFIX + "merges", merges),
    ]


def _missing_merge(table: TokenTable, merges: list[str]) -> tuple[str, str] | None:
    """Find two tokens that make a third and are no merge, None if there are none.

    An encoder by scores merges whatever two tokens make a third, one by merges does not.
    """
    known, normal = set(merges), _normal(table)
    for token in normal:
        for i in range(1, len(token)):
            left, right = token[:i], token[i:]
            if left in normal and right in normal and f"{left} {right}" not in known:
                return left, right
    return None


def _normal(table: TokenTable) -> set[str]:
    """Return the texts that merges may make."""
    return {
        token
        for token, kind in zip(table.tokens, table.types, strict=True)
        if kind is TokenType.NORMAL and not BYTE.fullmatch(token)
    }


def _spaces_marked(
    raw: Object, table: TokenTable, merges: list[str], scores: Scores | None, where: str
) -> Keys:
    """Write scores, which merge whatever two tokens make a third; if that is too much, merges."""
    keys = _marked_tokens(raw, table)
    missing = _missing_merge(table, merges) if scores is None else None
    if missing is None:
        if scores is None:
            scores = _scores_of(merges)
        return [
            text(PREFIX + "model", "llama"),
            text(PREFIX + "pre", "default"),
            *keys,
            numbers(PREFIX + "scores", [scores.get(token, NO_MERGE) for token in table.tokens]),
            flag(PREFIX + "add_space_prefix", adds_space(raw)),
        ]
    if raw["model"].get("byte_fallback") and not adds_space(raw):
        merged = texts(PREFIX + "merges", merges)
        # The name that files of its first family have.
        return [text(PREFIX + "model", "gemma4"), *keys, merged]
    left, right = missing
    raise UnsupportedModelError(
        f"{where}: model.merges: found none of {quote(left)} and {quote(right)}, which make a "
        "token (need all merges, as of a converted SentencePiece model, or tokenizer.model beside "
        "it)"
    )


def _scores_of(merges: list[str]) -> Scores:
    """Return scores that put the merges in their order: the earlier, the higher."""
    scores: dict[str, float] = {}
    for rank, merge in enumerate(merges):
        scores.setdefault(merge.replace(" ", ""), -float(rank))
    return scores


def _marked_tokens(raw: Object, table: TokenTable) -> Keys:
    tokens, types = list(table.tokens), list(table.types)
    unknown = raw["model"].get("unk_token")
    for i, token in enumerate(table.tokens):
        if BYTE.fullmatch(token):
            types[i] = TokenType.BYTE
        elif token == unknown:
            types[i] = TokenType.UNKNOWN
        elif types[i] is TokenType.USER_DEFINED:
            # Cut out of the text itself, so spelled as there.
            tokens[i] = token.replace(MARK, " ")
    return [texts(PREFIX + "tokens", tokens), counts(PREFIX + "token_type", types)]


def _merges(model: Object, where: str) -> list[str]:
    found = model.get("merges")
    if not isinstance(found, list):
        raise ModelFormatError(f"{where}: model.merges: found none (need a list)")
    return [_merge(merge, where) for merge in found]


def _merge(merge: Any, where: str) -> str:
    is_pair = isinstance(merge, list) and all(isinstance(token, str) for token in merge)
    joined = " ".join(merge) if is_pair else merge
    if not isinstance(joined, str) or joined.count(" ") != 1:
        found = quote(str(merge))
        raise ModelFormatError(f"{where}: model.merges: found {found} (need two tokens)")
    return joined


def _is_harmless(normalizer: Any) -> bool:
    """Tell whether a normalizer leaves texts as nearly everyone writes them."""
    found = parts_of(normalizer)
    return bool(found) and all(part.get("type") == "NFC" for part in found)
