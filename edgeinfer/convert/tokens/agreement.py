"""Try what was made of a tokenizer on a text: it must give the ids the folder's own gives.

Whatever the keys cannot say, and whatever was not thought of, shows here and not in the answers.
"""

import re
import unicodedata
from itertools import zip_longest

from edgeinfer.convert.keys import Keys
from edgeinfer.convert.tokens.folder import Found
from edgeinfer.convert.tokens.foreign import own_ids
from edgeinfer.convert.tokens.pre_tokenizer import PROBE
from edgeinfer.convert.tokens.table import added_tokens, adds_space, uses
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.text.special import MARKER_NAMES
from edgeinfer.text.tokenizer import tokenizer_from_metadata

MAX_ADDED = 16
LONG_RUN = re.compile(" {20,}")
TEXTS = (
    PROBE,
    "",
    " ",
    " one lead, one trail ",
    "A\u0301pple E\u0301cole \u0130stanbul STRASSE Stra\u00dfe \ufb01ne \u2460 \u00bd \uff21\uff22",
    "\u4f60\u597d world\u3002 \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "a\u200db \u200e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \ufeffx \u00adsoft",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U00020000 \ufffd \u0001 \u007f \ue000",
    "x" * 101 + " " + "y" * 100 + " \U0001d400",
)


def check_ids(found: Found, keys: Keys) -> None:
    """Raise UnsupportedModelError unless a file's tokenizer gives the ids of the folder's.

    Raises ModelFormatError if the library cannot make a tokenizer of the folder's, and
    UnsupportedModelError if that one takes too long.
    """
    metadata = Metadata({entry.key: entry.value for entry in keys}, where=found.where)
    tokenizer = tokenizer_from_metadata(metadata, where=found.where)
    texts = _texts(found)
    for text, need in zip(texts, _own_ids(found, texts), strict=True):
        ids = tokenizer.encode(text, add_special=False)
        if ids != need:
            pairs = zip_longest(ids, need)
            at = next(i for i, (one, other) in enumerate(pairs) if one != other)
            raise UnsupportedModelError(
                f"{found.where}: a text of {len(text)} characters would become {ids[at:][:8]} from "
                f"token {at} on (need {need[at:][:8]}): this tokenizer does what a GGUF file, or "
                "edgeinfer, has no form for"
            )


def _own_ids(found: Found, texts: list[str]) -> list[list[int]]:
    """Return the ids that the folder's files mean, of each text."""
    if found.kind == "BPE" and found.model_file is not None:  # there are no merges
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor()
        try:
            processor.LoadFromFile(str(found.model_file))
        except (RuntimeError, OSError) as error:
            raise ModelFormatError(f"{found.where}: sentencepiece refuses it: {error}") from None
        return [list(processor.EncodeAsIds(text)) for text in texts]
    return own_ids(found.raw, texts, found.where)


def _texts(found: Found) -> list[str]:
    """Return texts of all kinds, and some that hold the tokens that are never taken apart.

    Left out are those that end a turn: they are control tokens here, whatever their folder says.
    """
    raw = found.raw
    plain = [
        added["content"]
        for added in added_tokens(raw, found.where)
        if not added.get("special") and added["content"].encode() not in MARKER_NAMES
    ]
    # Readers of a file begin anew behind such a token with a space, where others may not.
    tried = [] if adds_space(raw) else plain[:MAX_ADDED]
    texts = [*TEXTS, *(f"a {token} b{token}c" for token in tried)]
    if found.kind == "BPE" and uses(raw.get("normalizer"), "NFC"):
        # Texts nearly everyone writes are so; no reader of a file normalizes the others.
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    if not uses(raw.get("pre_tokenizer"), "ByteLevel"):
        # SentencePiece takes the longest run that is a token, what was converted from it merges.
        texts = [LONG_RUN.sub(" ", text) for text in texts]
    if found.kind == "Unigram" and not uses(raw.get("pre_tokenizer"), "WhitespaceSplit"):
        # The one character that is white space to one half of these tokenizers.
        texts = [text.replace("\u0085", "") for text in texts]
    return texts
