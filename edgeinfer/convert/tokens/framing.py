"""Find which tokens a tokenizer puts before and behind every text, and which have a role.

In go the parsed files, out come the keys. A file can name one token before a text and one behind.
"""

from dataclasses import dataclass, field

from edgeinfer.convert.config import Config
from edgeinfer.convert.keys import Keys, flag, u32
from edgeinfer.convert.strict_json import Object
from edgeinfer.convert.tokens.table import TokenTable, model_of, parts_of
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.text.vocabulary import PREFIX

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


@dataclass(frozen=True, slots=True)
class Frame:
    """Ids around a text: at most one before and one behind."""

    before: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)


def framing_keys(
    raw: Object, settings: Object, generation: Object, c: Config, table: TokenTable, where: str
) -> Keys:
    """Return the ids of the roles, and which of them frame a text.

    Args:
        raw: a tokenizer.json.
        settings: a tokenizer_config.json.
        generation: a generation_config.json.
        c: the model's configuration.
        table: the tokens.
        where: the file, for messages.

    Raises:
        ModelFormatError: an id is no token's.
        UnsupportedModelError: a text gets tokens around it that a file cannot say.
    """
    ids = _role_ids(raw, settings, generation, c, table, where)
    frame = _frame(raw, table, where)
    adds = {f"{PREFIX}add_{role}_token": False for role in ("bos", "eos")}
    for begin in frame.before:
        if ids.setdefault("bos", begin) != begin and ids.get("cls") != begin:
            raise UnsupportedModelError(
                f"{where}: post_processor: begins texts with {quote(table.tokens[begin])} (need "
                f"the BOS token, {quote(table.tokens[ids['bos']])})"
            )
        ids["bos"] = begin
        adds[f"{PREFIX}add_bos_token"] = True
    for end in frame.behind:
        role = next((role for role in ("eos", "seperator") if ids.get(role) == end), "")
        if not role:
            role = "seperator" if model_of(raw, where).get("type") == "WordPiece" else "eos"
        if role == "eos" and ids.get("eos", end) != end:  # what ends an answer is another token
            ids.setdefault("eot", ids["eos"])
        ids[role] = end
        adds[f"{PREFIX}add_{'sep' if role == 'seperator' else role}_token"] = True
    for role in ("bos", "eos"):
        said = settings.get(f"add_{role}_token")
        if isinstance(said, bool):
            adds[f"{PREFIX}add_{role}_token"] = said and role in ids
    for role, token_id in ids.items():
        if not 0 <= token_id < len(table.tokens):
            raise ModelFormatError(
                f"{where}: {role} token: found id {token_id} (need below {len(table.tokens)})"
            )
    keys = [u32(f"{PREFIX}{role}_token_id", token_id) for role, token_id in ids.items()]
    return keys + [flag(key, value) for key, value in adds.items()]


def _role_ids(
    raw: Object, settings: Object, generation: Object, c: Config, table: TokenTable, where: str
) -> dict[str, int]:
    """Return role to id; of several ids that end a generation, the others become eot and eom."""
    found: dict[str, int] = {}
    for role, name in ROLES.items():
        token = settings.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token in table.ids:
            found[name] = table.ids[token]
            continue
        given = c.raw.get(f"{role}_token_id")
        first = given[0] if isinstance(given, list) and given else given
        if type(first) is int:
            found[name] = first
    unknown = _unknown(raw, table, where)
    if unknown is not None:
        found["unknown"] = unknown
    ends = generation.get("eos_token_id", c.raw.get("eos_token_id"))
    if isinstance(ends, list):
        others = [end for end in ends if type(end) is int and end != found.get("eos")]
        found |= dict(zip(("eot", "eom"), others, strict=False))
    return found


def _unknown(raw: Object, table: TokenTable, where: str) -> int | None:
    """Return the id that the tokenizer's model itself gives what is no token."""
    model = model_of(raw, where)
    if type(model.get("unk_id")) is int:
        return int(model["unk_id"])
    unknown = model.get("unk_token")
    return table.ids.get(unknown) if isinstance(unknown, str) else None


def _frame(raw: Object, table: TokenTable, where: str) -> Frame:
    frame = Frame()
    for part in parts_of(raw.get("post_processor")):
        kind = part.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            frame.before.append(_id_of(part.get("cls"), where))
            frame.behind.append(_id_of(part.get("sep"), where))
        elif kind == "TemplateProcessing":
            _add_template(frame, part, table, where)
        elif kind != "ByteLevel":
            raise UnsupportedModelError(
                f"{where}: post_processor: found {quote(str(kind))} (need TemplateProcessing)"
            )
    if len(frame.before) > 1 or len(frame.behind) > 1:
        raise UnsupportedModelError(
            f"{where}: post_processor: puts {len(frame.before)} tokens before a text and "
            f"{len(frame.behind)} behind (need at most 1 each, which is what a GGUF file can say)"
        )
    return frame


def _add_template(frame: Frame, part: Object, table: TokenTable, where: str) -> None:
    single = part.get("single")
    side = frame.before
    for piece in single if isinstance(single, list) else ():
        if not isinstance(piece, dict):
            break
        if "Sequence" in piece:
            side = frame.behind
            continue
        special = piece.get("SpecialToken")
        token = str(special.get("id")) if isinstance(special, dict) else ""
        if token not in table.ids:
            raise ModelFormatError(f"{where}: post_processor: found {quote(token)} (need a token)")
        side.append(table.ids[token])


def _id_of(pair: object, where: str) -> int:
    """Return the id of a pair of text and id."""
    if isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int:
        return int(pair[1])
    raise ModelFormatError(
        f"{where}: post_processor: found {quote(str(pair))} (need a token and its id)"
    )
