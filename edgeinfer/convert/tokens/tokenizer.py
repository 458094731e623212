"""Make the keys of a tokenizer: table, special tokens, chat template, sampling hints."""

from pathlib import Path

from edgeinfer.convert.config import Config
from edgeinfer.convert.keys import Keys, f32, text, texts, u32
from edgeinfer.convert.strict_json import Object, read_object
from edgeinfer.convert.tokens.agreement import check_ids
from edgeinfer.convert.tokens.byte_pairs import byte_pair_keys
from edgeinfer.convert.tokens.folder import Found, read_tokenizer
from edgeinfer.convert.tokens.framing import framing_keys
from edgeinfer.convert.tokens.table import TokenTable, token_table
from edgeinfer.convert.tokens.unigram import unigram_keys
from edgeinfer.convert.tokens.wordpiece import word_piece_keys
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX

HINTS = {
    "temperature": "temp",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def tokenizer_keys(folder: Path, c: Config, *, n_vocab: int) -> Keys:
    """Return the keys of a folder's tokenizer for a model with `n_vocab` rows of embeddings.

    Raises ModelNotFoundError if there is no tokenizer, ModelFormatError if it is damaged or of
    another model, UnsupportedModelError if it is of a kind that is not known.
    """
    found = read_tokenizer(folder)
    raw, where = found.raw, found.where
    generation = _optional(folder / "generation_config.json")
    table = token_table(raw, n_vocab, where)
    keys = _table_keys(found, table)
    keys += framing_keys(raw, found.settings, generation, c, table, where)
    check_ids(found, keys)
    if "type_vocab_size" in c.values:
        n_types = c.values.integer("type_vocab_size", least=0)
        keys.append(u32(PREFIX + "token_type_count", n_types))
    return keys + _templates(found) + _hints(generation)


def _table_keys(found: Found, table: TokenTable) -> Keys:
    kind = found.kind
    if kind == "BPE":
        return byte_pair_keys(found.raw, table, found.where, found.scores)
    if kind == "WordPiece":
        return word_piece_keys(found.raw, table, found.where)
    if kind == "Unigram":
        return unigram_keys(found.raw, table, found.where)
    raise UnsupportedModelError(
        f"{found.where}: model.type: found {quote(kind)} (need BPE, WordPiece or Unigram): this "
        "version of edgeinfer has no encoder for it"
    )


def _optional(path: Path) -> Object:
    return read_object(path) if path.is_file() else {}


def _templates(found: Found) -> Keys:
    """Return the chat templates: one, or several with names."""
    listed = found.settings.get("chat_template")
    if isinstance(listed, str):
        listed = [{"name": "default", "template": listed}]
    named: dict[str, str] = {}
    for one in listed if isinstance(listed, list) else [listed] if listed else []:
        about = one if isinstance(one, dict) else {}
        name, source = about.get("name"), about.get("template")
        if not isinstance(name, str) or not isinstance(source, str):
            raise ModelFormatError(
                f"{found.where}: chat_template: found {quote(str(one))} (need name and template)"
            )
        if name in named:
            raise ModelFormatError(f"{found.where}: chat_template: found {quote(name)} twice")
        named[name] = source
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
        f32(f"general.sampling.{name}", generation[key])
        for key, name in HINTS.items()
        if type(generation.get(key)) in (int, float)
    ]
    top_k = generation.get("top_k")
    return keys + ([u32("general.sampling.top_k", top_k)] if type(top_k) is int else [])
