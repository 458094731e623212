"""Read a folder's tokenizer, whichever of its files there are, as tokenizer.json would have it.

tokenizer.json alone suffices. Without it, vocab.txt of a BERT does, whose rules are fixed.
tokenizer_config.json and special_tokens_map.json add which tokens have a role.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.convert.strict_json import Object, read_object
from edgeinfer.convert.tokens.table import model_of
from edgeinfer.errors import ModelFormatError, ModelNotFoundError
from edgeinfer.loader.mapped import display

NAME = "tokenizer.json"
WORD_PIECES = "vocab.txt"
SENTENCEPIECE = "tokenizer.model"
SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")

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


@dataclass(frozen=True, slots=True)
class Found:
    """A folder's tokenizer.

    Attributes:
        where: the file, for messages.
        raw: as tokenizer.json has it.
        settings: the tokens with a role, and what is added to texts.
        scores: of the tokens by their texts, where there is a tokenizer.model.
    """

    where: str
    raw: Object
    settings: Object
    scores: Mapping[str, float] | None = None

    @property
    def kind(self) -> str:
        """What the tokenizer's model is called; old files of BPE do not say."""
        model = model_of(self.raw, self.where)
        return str(model.get("type", "BPE" if "merges" in model else None))


def read_tokenizer(folder: Path) -> Found:
    """Read a folder's tokenizer.

    Raises ModelNotFoundError if there is none, ModelFormatError if a file of it is damaged.
    """
    settings: Object = {}
    for name in SETTINGS:
        if (folder / name).is_file():
            settings |= read_object(folder / name)
    path = folder / NAME
    if path.is_file():
        return Found(display(path), read_object(path), settings, _scores(folder / SENTENCEPIECE))
    path = folder / WORD_PIECES
    if path.is_file():
        settings = BERT | {key: value for key, value in settings.items() if value is not None}
        return Found(display(path), _word_pieces(path, settings), settings)
    raise ModelNotFoundError(
        f"{display(folder)}: found no {NAME} (need the fast tokenizer: in transformers, "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it)"
    )


def _scores(path: Path) -> Mapping[str, float] | None:
    if not path.is_file():
        return None
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromFile(str(path))
    except (RuntimeError, OSError) as error:
        raise ModelFormatError(f"{display(path)}: sentencepiece refuses it: {error}") from None
    return {processor.IdToPiece(i): processor.GetScore(i) for i in range(processor.GetPieceSize())}


def _word_pieces(path: Path, settings: Object) -> Object:
    """Return what BertTokenizer makes of a list of tokens, one a line."""
    try:
        lines = path.read_bytes().decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise ModelFormatError(f"{display(path)}: not UTF-8") from None
    ids = {token: token_id for token_id, token in enumerate(lines)}
    special = {role: _content(settings[f"{role}_token"]) for role in ("unk", "sep", "cls", "pad")}
    special["mask"] = _content(settings["mask_token"])
    for role in ("unk", "cls", "sep"):
        if special[role] not in ids:
            raise ModelFormatError(
                f"{display(path)}: found no {special[role]!r} (need the {role} token)"
            )
    frame = [
        {"SpecialToken": {"id": special["cls"], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": special["sep"], "type_id": 0}},
    ]
    return {
        "added_tokens": [
            {"id": ids[token], "content": token, "special": True, **_PLAIN}
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
        "post_processor": {
            "type": "TemplateProcessing",
            "single": frame,
            "pair": frame,
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in (special["cls"], special["sep"])
            },
        },
        "model": {
            "type": "WordPiece",
            "unk_token": special["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }


_PLAIN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def _content(token: object) -> str:
    return str(token.get("content")) if isinstance(token, dict) else str(token)
