"""Make the token table of a file of WordPiece from a tokenizer.json (the BERT family).

A file marks where words begin, with U+2581, where BERT marks where they go on, with "##".
"""

from edgeinfer.convert.keys import Keys, counts, flag, text, texts
from edgeinfer.convert.strict_json import Object
from edgeinfer.convert.tokens.table import MARK, TokenTable, model_of, parts_of
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX, TokenType

GOES_ON = "##"
# What every reader of a file does, and no key can say otherwise.
MODEL = {"continuing_subword_prefix": GOES_ON, "max_input_chars_per_word": 100}
NORMALIZER = {"clean_text": True, "handle_chinese_chars": True}


def word_piece_keys(raw: Object, table: TokenTable, where: str) -> Keys:
    """Return the keys of the token table.

    Raises UnsupportedModelError if it cuts or spells words as no reader of a file does.
    """
    _expect(model_of(raw, where), MODEL, f"{where}: model")
    found = parts_of(raw.get("normalizer"))
    if [part.get("type") for part in found] != ["BertNormalizer"]:
        raise _other(f"{where}: normalizer", raw.get("normalizer"), "BertNormalizer")
    cut = parts_of(raw.get("pre_tokenizer"))
    if [part.get("type") for part in cut] != ["BertPreTokenizer"]:
        raise _other(f"{where}: pre_tokenizer", raw.get("pre_tokenizer"), "BertPreTokenizer")
    (normalizer,) = found
    _expect(normalizer, NORMALIZER, f"{where}: normalizer")
    lowercase = normalizer.get("lowercase", True) is True
    accents = normalizer.get("strip_accents")
    return [
        text(PREFIX + "model", "bert"),
        text(PREFIX + "pre", "default"),
        texts(PREFIX + "tokens", [_spelled(*token, where) for token in _tokens(table)]),
        counts(PREFIX + "token_type", table.types),
        flag(PREFIX + "normalizer.lowercase", lowercase),
        flag(PREFIX + "normalizer.strip_accents", lowercase if accents is None else accents),
    ]


def _tokens(table: TokenTable) -> list[tuple[str, TokenType]]:
    return list(zip(table.tokens, table.types, strict=True))


def _spelled(token: str, kind: TokenType, where: str) -> str:
    """Return a token as a file spells it; special ones are the same there."""
    if kind is not TokenType.NORMAL:
        return token
    if not token.startswith(GOES_ON):
        return MARK + token
    if token.startswith(GOES_ON + MARK):
        raise UnsupportedModelError(
            f"{where}: token {quote(token)}: found U+2581 behind {GOES_ON} (need another "
            "character): in a file it would begin a word"
        )
    return token.removeprefix(GOES_ON)


def _expect(part: Object, values: Object, where: str) -> None:
    for key, value in values.items():
        if part.get(key, value) != value:
            raise _other(f"{where}.{key}", part[key], value)


def _other(where: str, found: object, need: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where}: found {quote(str(found))} (need {need}): a GGUF file has no form for another"
    )
