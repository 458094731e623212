"""Make the token table of a GGUF file from the model inside a tokenizer.json.

Knows the two kinds of BPE: over bytes written as letters (GPT-2), and over characters with U+2581
for spaces and tokens <0x00> to <0xFF> for what no token covers (SentencePiece). In goes the parsed
file, out come the keys of the table.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgeinfer.convert.keys import Keys, counts, flag, numbers, text, texts
from edgeinfer.convert.pre_tokenizer import name_of
from edgeinfer.convert.strict_json import Object
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX, TokenType

NO_MERGE = -1e9  # the score of tokens that no merge makes
MARK = "\u2581"
BYTE = re.compile("<0x[0-9A-F]{2}>")

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token texts by id, padded to the model's rows; `ids` finds the id of a text."""

    tokens: list[str]
    types: list[TokenType]
    ids: dict[str, int]

    def normal(self) -> set[str]:
        """Return the texts that merges may make."""
        return {
            token
            for token, kind in zip(self.tokens, self.types, strict=True)
            if kind is TokenType.NORMAL and not BYTE.fullmatch(token)
        }


def token_table(raw: Object, n_vocab: int, where: str) -> TokenTable:
    """Return the tokens of vocabulary and added tokens, in the order of their ids.

    Raises ModelFormatError if two tokens have one id, or an id has no row in the model.
    """
    vocab = _section(raw, where).get("vocab")
    if not isinstance(vocab, dict) or not all(type(i) is int for i in vocab.values()):
        raise ModelFormatError(f"{where}: model.vocab: found {type(vocab).__name__} (need ids)")
    found: dict[int, tuple[str, TokenType]] = {}
    for token, token_id in vocab.items():
        if token_id in found:
            raise ModelFormatError(f"{where}: token id {token_id}: found twice (need each once)")
        found[token_id] = (token, TokenType.NORMAL)
    for added in raw.get("added_tokens") or ():
        about = added if isinstance(added, dict) else {}
        token, token_id = about.get("content"), about.get("id")
        if not isinstance(token, str) or type(token_id) is not int:
            raise ModelFormatError(
                f"{where}: added_tokens: found {quote(str(added))} (need content and id)"
            )
        kind = TokenType.CONTROL if about.get("special") else TokenType.USER_DEFINED
        found[token_id] = (token, kind)
    if found and not 0 <= min(found) <= max(found) < n_vocab:
        raise ModelFormatError(
            f"{where}: token id {max(found)}: found {n_vocab} rows in the model's embeddings (need "
            "one a token); tokenizer and model do not belong together"
        )
    padded = [found.get(i, (f"[PAD{i}]", TokenType.UNUSED)) for i in range(n_vocab)]
    tokens, types = [token for token, _ in padded], [kind for _, kind in padded]
    return TokenTable(tokens, types, {token: i for i, token in enumerate(tokens)})


def table_keys(raw: Object, table: TokenTable, where: str, scores: Scores | None = None) -> Keys:
    """Return the keys of the token table; `scores` are those of a tokenizer.model, if there is one.

    Raises UnsupportedModelError for a kind of tokenizer that there is no encoder for.
    """
    model = _section(raw, where)
    kind = model.get("type")
    # Old files of BPE do not name their kind.
    if kind != "BPE" and not (kind is None and "merges" in model):
        raise UnsupportedModelError(
            f"{where}: model.type: found {quote(str(kind))} (need BPE): this version of edgeinfer "
            "has no encoder for it"
        )
    merges = _merges(model, where)
    if _uses(raw.get("pre_tokenizer"), "ByteLevel"):
        return _byte_level(raw, table, merges, where)
    if model.get("byte_fallback") or MARK in str(raw.get("normalizer")):
        return _spaces_marked(raw, table, scores or _scores_of(table, merges, where))
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


def _scores_of(table: TokenTable, merges: list[str], where: str) -> Scores:
    """Return scores that put the merges in their order: the earlier, the higher.

    An encoder by scores merges whatever two tokens make a third. Where some such pair is no merge,
    it would do what this tokenizer does not.
    """
    scores: dict[str, float] = {}
    for rank, merge in enumerate(merges):
        scores.setdefault(merge.replace(" ", ""), -float(rank))
    known, normal = set(merges), table.normal()
    for token in normal:
        for i in range(1, len(token)):
            left, right = token[:i], token[i:]
            if left in normal and right in normal and f"{left} {right}" not in known:
                raise UnsupportedModelError(
                    f"{where}: model.merges: found none of {quote(left)} and {quote(right)}, which "
                    "make a token (need all merges, as of a converted SentencePiece model, or "
                    "tokenizer.model beside it)"
                )
    return scores


def _spaces_marked(raw: Object, table: TokenTable, scores: Scores) -> Keys:
    types = list(table.types)
    unknown = raw["model"].get("unk_token")
    for i, token in enumerate(table.tokens):
        if BYTE.fullmatch(token):
            types[i] = TokenType.BYTE
        elif token == unknown:
            types[i] = TokenType.UNKNOWN
    return [
        text(PREFIX + "model", "llama"),
        text(PREFIX + "pre", "default"),
        texts(PREFIX + "tokens", table.tokens),
        counts(PREFIX + "token_type", types),
        numbers(PREFIX + "scores", [scores.get(token, NO_MERGE) for token in table.tokens]),
        flag(PREFIX + "add_space_prefix", _adds_space(raw)),
    ]


def _adds_space(raw: Object) -> bool:
    cut = raw.get("pre_tokenizer")
    scheme = cut.get("prepend_scheme") if isinstance(cut, dict) else None
    return _uses(raw.get("normalizer"), "Prepend") or scheme in ("first", "always")


def _merges(model: Object, where: str) -> list[str]:
    found = model.get("merges")
    if not isinstance(found, list):
        raise ModelFormatError(f"{where}: model.merges: found none (need a list)")
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in found]
    bad = next((m for m in merges if not isinstance(m, str) or m.count(" ") != 1), None)
    if bad is not None:
        raise ModelFormatError(f"{where}: model.merges: found {quote(str(bad))} (need two tokens)")
    return merges


def _section(raw: Object, where: str) -> Object:
    model = raw.get("model")
    if not isinstance(model, dict):
        raise ModelFormatError(f"{where}: key 'model': found none (need an object)")
    return model


def _uses(part: Any, kind: str) -> bool:
    """Tell whether a part of a tokenizer, or one in its sequence, is of this kind."""
    if not isinstance(part, dict):
        return False
    inner = part.get("pretokenizers") or part.get("normalizers") or ()
    return part.get("type") == kind or any(_uses(one, kind) for one in inner)


def _is_harmless(normalizer: Any) -> bool:
    """Tell whether a normalizer leaves texts as nearly everyone writes them."""
    if not isinstance(normalizer, dict):
        return False
    inner = normalizer.get("normalizers")
    if inner is not None:
        return all(_is_harmless(one) for one in inner)
    return bool(normalizer.get("type") == "NFC")
