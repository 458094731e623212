"""List the tokens of a tokenizer.json by id: vocabulary and added tokens, padded to the model.

Knows what every kind of tokenizer has in common; the kinds make keys of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgeinfer.convert.strict_json import Object
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import TokenType

MARK = "\u2581"  # how SentencePiece writes a space


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token texts by id, padded to the model's rows; `ids` finds the id of a text."""

    tokens: list[str]
    types: list[TokenType]
    ids: dict[str, int]


def model_of(raw: Object, where: str) -> Object:
    """Return the section `model`. Raises ModelFormatError if there is none."""
    model = raw.get("model")
    if not isinstance(model, dict):
        raise ModelFormatError(f"{where}: key 'model': found none (need an object)")
    return model


def token_table(raw: Object, n_vocab: int, where: str) -> TokenTable:
    """Return the tokens of vocabulary and added tokens, in the order of their ids.

    Raises ModelFormatError if two tokens have one id, or an id has no row in the model.
    """
    found: dict[int, tuple[str, TokenType]] = {}
    for token, token_id in _vocab(raw, where):
        if token_id in found:
            raise ModelFormatError(f"{where}: token id {token_id}: found twice (need each once)")
        found[token_id] = (token, TokenType.NORMAL)
    for added in added_tokens(raw, where):
        kind = TokenType.CONTROL if added.get("special") else TokenType.USER_DEFINED
        found[added["id"]] = (added["content"], kind)
    outside = [token_id for token_id in found if not 0 <= token_id < n_vocab]
    if outside:
        raise ModelFormatError(
            f"{where}: token id {outside[-1]}: found {n_vocab} rows in the model's embeddings "
            "(need one a token); tokenizer and model do not belong together"
        )
    padded = [found.get(i, (f"[PAD{i}]", TokenType.UNUSED)) for i in range(n_vocab)]
    tokens, types = [token for token, _ in padded], [kind for _, kind in padded]
    return TokenTable(tokens, types, {token: i for i, token in enumerate(tokens)})


def _vocab(raw: Object, where: str) -> Iterable[tuple[str, int]]:
    """Return texts and ids: an object says both, a list of texts and scores goes by the ids."""
    vocab = model_of(raw, where).get("vocab")
    if isinstance(vocab, dict) and all(type(token_id) is int for token_id in vocab.values()):
        return vocab.items()
    if isinstance(vocab, list) and all(_is_scored(entry) for entry in vocab):
        return ((entry[0], token_id) for token_id, entry in enumerate(vocab))
    raise ModelFormatError(
        f"{where}: model.vocab: found {type(vocab).__name__} (need ids, or scores)"
    )


def _is_scored(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], str) and type(entry[1]) in (int, float)


def added_tokens(raw: Object, where: str) -> list[Object]:
    """Return the added tokens, each with its content and id. Raises ModelFormatError."""
    listed = raw.get("added_tokens") or []
    if not isinstance(listed, list):
        raise ModelFormatError(f"{where}: added_tokens: found {quote(str(listed))} (need a list)")
    for added in listed:
        about = added if isinstance(added, dict) else {}
        if not isinstance(about.get("content"), str) or type(about.get("id")) is not int:
            raise ModelFormatError(
                f"{where}: added_tokens: found {quote(str(added))} (need content and id)"
            )
    return list(listed)


def adds_space(raw: Object) -> bool:
    """Tell whether a text, or each word, gets a space of the tokenizer's own at its begin."""
    if uses(raw.get("normalizer"), "Prepend"):
        return True
    for part in parts_of(raw.get("pre_tokenizer")):
        scheme = part.get("prepend_scheme", "always" if part.get("add_prefix_space") else None)
        if part.get("type") == "Metaspace":
            return scheme in ("first", "always")
    return False


def uses(part: Any, kind: str) -> bool:
    """Tell whether a part of a tokenizer, or one in its sequence, is of this kind."""
    return any(one.get("type") == kind for one in parts_of(part))


def parts_of(part: Any) -> list[Object]:
    """Return a part of a tokenizer, or those of its sequence and of the sequences in it."""
    if not isinstance(part, dict):
        return []
    for inner in ("pretokenizers", "normalizers", "processors"):
        if isinstance(part.get(inner), list):
            return [one for entry in part[inner] for one in parts_of(entry)]
    return [part]
