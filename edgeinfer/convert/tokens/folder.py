"""Read a folder's tokenizer, whichever of its files there are, as tokenizer.json would have it.

tokenizer.json alone suffices. Without it, tokenizer.model of SentencePiece does, or vocab.txt of
a BERT, whose rules are fixed.
tokenizer_config.json and special_tokens_map.json add which tokens have a role.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.convert.strict_json import Object, read_object, read_text
from edgeinfer.convert.tokens.rebuilding import BERT, sentence_pieces, word_pieces
from edgeinfer.convert.tokens.sentencepiece_model import read_sentencepiece
from edgeinfer.convert.tokens.table import model_of
from edgeinfer.errors import ModelNotFoundError
from edgeinfer.loader.mapped import display

NAME = "tokenizer.json"
WORD_PIECES = "vocab.txt"
SENTENCEPIECE = "tokenizer.model"
TEMPLATE = "chat_template.jinja"
ADDED = "added_tokens.json"
SETTINGS = ("special_tokens_map.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Found:
    """A folder's tokenizer.

    Attributes:
        where: the file, for messages.
        raw: as tokenizer.json has it.
        settings: the tokens with a role, and what is added to texts.
        scores: of the tokens by their texts, where there is a tokenizer.model.
        model_file: the tokenizer.model, where there is nothing else.
    """

    where: str
    raw: Object
    settings: Object
    scores: Mapping[str, float] | None = None
    model_file: Path | None = None

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
    template = folder / TEMPLATE
    if template.is_file():
        settings["chat_template"] = read_text(template)
    path = folder / NAME
    if path.is_file():
        return Found(display(path), read_object(path), settings, _scores(folder / SENTENCEPIECE))
    path = folder / SENTENCEPIECE
    if path.is_file():
        return _sentencepiece(path, settings)
    path = folder / WORD_PIECES
    if path.is_file():
        settings = BERT | {key: value for key, value in settings.items() if value is not None}
        return Found(display(path), word_pieces(path, settings), settings)
    raise ModelNotFoundError(
        f"{display(folder)}: found no {NAME} (need the fast tokenizer: in transformers, "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it)"
    )


def _scores(path: Path) -> Mapping[str, float] | None:
    if not path.is_file():
        return None
    return {piece.text: piece.score for piece in read_sentencepiece(path).pieces}


def _sentencepiece(path: Path, settings: Object) -> Found:
    model = read_sentencepiece(path)
    folder, more = path.parent, {}
    if (folder / ADDED).is_file():
        more = read_object(folder / ADDED)
    where = display(path)
    roles = {f"{role}_token": model.pieces[i].text for role, i in model.roles.items()}
    # Classes of transformers that read such a file put BOS before texts, unless told otherwise.
    assumed = roles | {"add_bos_token": "bos" in model.roles, "add_eos_token": False}
    settings = assumed | {key: value for key, value in settings.items() if value is not None}
    return Found(
        where,
        sentence_pieces(model, settings, more, where),
        settings,
        {piece.text: piece.score for piece in model.pieces},
        path,
    )
