"""Write down as tokenizer.json what classes of transformers make of files that say less.

In go the tokens of a vocab.txt or a tokenizer.model and the settings, out comes the object.
"""

import base64
import re
from pathlib import Path
from typing import Any

from edgeinfer.convert.strict_json import Object, read_text
from edgeinfer.convert.tokens.sentencepiece_model import SentencePieceModel
from edgeinfer.convert.tokens.table import MARK
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.text.vocabulary import TokenType

_ID = re.compile("[0-9]{1,9}")
_PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}

# What BertTokenizer assumes where the settings do not say.
BERT: Object = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
}


def word_pieces(path: Path, settings: Object) -> Object:
    """Return what BertTokenizer makes of a list of tokens, one a line."""
    lines = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
    ids = {token: token_id for token_id, token in enumerate(lines)}
    special = {role: _content(settings[f"{role}_token"]) for role in ("unk", "sep", "cls", "pad")}
    special["mask"] = _content(settings["mask_token"])
    for role in ("unk", "cls", "sep"):
        if special[role] not in ids:
            raise ModelFormatError(
                f"{display(path)}: found no {special[role]!r} (need the {role} token)"
            )
    return {
        "added_tokens": [
            _added(ids[token], token, special=True)
            for token in dict.fromkeys(special.values())
            if token in ids
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings["tokenize_chinese_chars"],
            "strip_accents": settings["strip_accents"],
            "lowercase": settings["do_lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _framed(special["cls"], special["sep"], ids),
        "model": {
            "type": "WordPiece",
            "unk_token": special["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }


def _framed(begin: str, end: str, ids: dict[str, int]) -> Object:
    """Return what puts a token before a text and one behind it."""
    frame = [
        {"SpecialToken": {"id": begin, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": end, "type_id": 0}},
    ]
    return {
        "type": "TemplateProcessing",
        "single": frame,
        "pair": frame,
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (begin, end)
        },
    }


def sentence_pieces(
    model: SentencePieceModel, settings: Object, more: Object, where: str
) -> Object:
    """Return what LlamaTokenizer and its like make of a model; `more` is added_tokens.json."""
    pieces, roles = model.pieces, model.roles
    special = (TokenType.CONTROL, TokenType.UNKNOWN)
    added = {
        i: _added(i, piece.text, piece.kind in special)
        for i, piece in enumerate(pieces)
        if piece.kind in (*special, TokenType.USER_DEFINED)
    }
    added |= {i: _added(i, token, False) for token, i in more.items() if type(i) is int}
    added |= _decoder(settings.get("added_tokens_decoder"), where)
    made: Object = {"type": model.kind, "byte_fallback": model.byte_fallback}
    space = model.add_dummy_prefix
    if model.kind == "Unigram":
        made |= {"unk_id": roles.get("unk"), "vocab": [[p.text, p.score] for p in pieces]}
        normalizers = [
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK},
        ]
        if model.charsmap:
            charsmap = base64.b64encode(model.charsmap).decode()
            normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": charsmap})
        scheme = "always" if space else "never"
        cut = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True}
    else:
        used = {p.text: i for i, p in enumerate(pieces) if p.kind is not TokenType.UNUSED}
        made |= {"unk_token": pieces[roles["unk"]].text if "unk" in roles else None}
        made |= {"vocab": used, "merges": []}
        prepend = {"type": "Prepend", "prepend": MARK}
        marks = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
        normalizers = [prepend, marks] if space else [marks]
        cut = None
    return {
        "added_tokens": list(added.values()),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": cut,
        "model": made,
    }


def _decoder(found: Any, where: str) -> dict[int, Object]:
    """Return the added tokens a tokenizer_config.json lists, by id."""
    if found is None:
        return {}
    listed = found.items() if isinstance(found, dict) else ()
    made = {}
    for token_id, about in listed:
        content = about.get("content") if isinstance(about, dict) else None
        if not _ID.fullmatch(token_id) or not isinstance(content, str):
            raise ModelFormatError(
                f"{where}: added_tokens_decoder: found {quote(token_id)} (need ids and tokens)"
            )
        made[int(token_id)] = _added(int(token_id), content, about.get("special") is True)
    return made


def _added(token_id: int, content: str, special: bool) -> Object:
    return {"id": token_id, "content": content, "special": special, **_PLAIN}


def _content(token: object) -> str:
    return str(token.get("content")) if isinstance(token, dict) else str(token)
