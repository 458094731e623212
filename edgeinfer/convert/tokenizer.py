"""Make the keys of a tokenizer: its table, its special tokens, the chat template, sampling hints.

tokenizer.json alone suffices; tokenizer_config.json, generation_config.json and
chat_template.jinja add what they say.
"""

from pathlib import Path
from typing import Any

from edgeinfer.convert.config import Config
from edgeinfer.convert.keys import Keys, f32, flag, text, texts, u32
from edgeinfer.convert.strict_json import Object, read_object
from edgeinfer.convert.token_tables import TokenTable, table_keys, token_table
from edgeinfer.errors import ModelFormatError, ModelNotFoundError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.text.vocabulary import PREFIX

NAME = "tokenizer.json"
SENTENCEPIECE = "tokenizer.model"
# What GGUF calls the roles of tokens.
ROLES = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "pad": "padding",
    "sep": "seperator",
    "cls": "cls",
    "mask": "mask",
}
HINTS = {
    "temperature": "temp",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def tokenizer_keys(folder: Path, c: Config, *, n_vocab: int) -> Keys:
    """Return the keys of a folder's tokenizer for a model with `n_vocab` rows of embeddings.

    Raises ModelNotFoundError if there is no tokenizer.json, ModelFormatError if it is damaged or
    of another model, UnsupportedModelError if it is of a kind that is not known.
    """
    path = folder / NAME
    where = display(path)
    if not path.is_file():
        raise ModelNotFoundError(
            f"{where}: no such file (need the fast tokenizer: in transformers, "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it)"
        )
    raw = read_object(path)
    more = _optional(folder / "tokenizer_config.json")
    generation = _optional(folder / "generation_config.json")
    table = token_table(raw, n_vocab, where)
    keys = table_keys(raw, table, where, _scores(folder / SENTENCEPIECE))
    ids = _role_ids(c, more, generation, table, where)
    keys += [u32(f"{PREFIX}{role}_token_id", token_id) for role, token_id in ids.items()]
    keys += [
        flag(f"{PREFIX}add_{role}_token", _adds(raw, more, role, ids.get(role), table))
        for role in ("bos", "eos")
    ]
    return keys + _templates(folder, more) + _hints(generation)


def _optional(path: Path) -> Object:
    return read_object(path) if path.is_file() else {}


def _scores(path: Path) -> dict[str, float] | None:
    """Return the scores of a SentencePiece model's tokens by their texts, if there is one."""
    if not path.is_file():
        return None
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromFile(str(path))
    except (RuntimeError, OSError) as error:
        raise ModelFormatError(f"{display(path)}: sentencepiece refuses it: {error}") from None
    return {processor.IdToPiece(i): processor.GetScore(i) for i in range(processor.GetPieceSize())}


def _role_ids(
    c: Config, more: Object, generation: Object, table: TokenTable, where: str
) -> dict[str, int]:
    """Return role to id; of several ids that end a generation, the others become eot and eom."""
    found: dict[str, int] = {}
    for role, name in ROLES.items():
        token = more.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token in table.ids:
            found[name] = table.ids[token]
            continue
        given = c.raw.get(f"{role}_token_id")
        first = given[0] if isinstance(given, list) and given else given
        if type(first) is int:
            found[name] = first
    ends = generation.get("eos_token_id", c.raw.get("eos_token_id"))
    others = [end for end in ends if end != found.get("eos")] if isinstance(ends, list) else []
    found |= dict(zip(("eot", "eom"), others, strict=False))
    for role, token_id in found.items():
        if type(token_id) is not int or not 0 <= token_id < len(table.tokens):
            raise ModelFormatError(
                f"{where}: {role} token: found id {quote(str(token_id))} (need below "
                f"{len(table.tokens)})"
            )
    return found


def _adds(raw: Object, more: Object, role: str, token_id: int | None, table: TokenTable) -> bool:
    """Tell whether a text gets the token at its begin or end."""
    said = more.get(f"add_{role}_token")
    if isinstance(said, bool):
        return said and token_id is not None
    if token_id is None:
        return False
    for part in _sequence(raw.get("post_processor")):
        single = part.get("single") if part.get("type") == "TemplateProcessing" else None
        if isinstance(single, list) and single:
            at = single[0 if role == "bos" else -1].get("SpecialToken") or {}
            return table.ids.get(str(at.get("id"))) == token_id
    return False


def _sequence(processor: Any) -> list[Object]:
    if not isinstance(processor, dict):
        return []
    inner = processor.get("processors")
    return [part for part in inner if isinstance(part, dict)] if inner else [processor]


def _templates(folder: Path, more: Object) -> Keys:
    path = folder / "chat_template.jinja"
    found = more.get("chat_template")
    if path.is_file():
        try:
            found = path.read_bytes().decode()
        except UnicodeDecodeError:
            raise ModelFormatError(f"{display(path)}: not UTF-8") from None
    named = {"default": found} if isinstance(found, str) else {}
    if isinstance(found, list):
        named = {
            one["name"]: one["template"] for one in found if {"name", "template"} <= one.keys()
        }
    keys = [
        text("tokenizer.chat_template" + ("" if name == "default" else f".{name}"), source)
        for name, source in named.items()
    ]
    others = [name for name in named if name != "default"]
    return keys + ([texts("tokenizer.chat_templates", others)] if others else [])


def _hints(generation: Object) -> Keys:
    """Return the sampling that the authors recommend; where they do not sample, none."""
    if generation.get("do_sample") is not True:
        return []
    keys = [
        f32(f"general.sampling.{name}", float(generation[key]))
        for key, name in HINTS.items()
        if type(generation.get(key)) in (int, float)
    ]
    top_k = generation.get("top_k")
    return keys + ([u32("general.sampling.top_k", top_k)] if type(top_k) is int else [])
