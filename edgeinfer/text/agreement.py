"""Tell whether two model files mean the same tokens by the same ids; builds no encoder."""

import numpy as np

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray
from edgeinfer.text.vocabulary import PREFIX, TokenType, Vocabulary, read_vocabulary, role_id

ROLES = ("bos", "eos")


def n_common_tokens(model: Metadata, draft: Metadata, *, where: str) -> int:
    """Return how many ids, from 0 on, mean the same to a model and to the draft that `where` names.

    One may have more tokens than the other if they are padding, of the type unused.

    Raises:
        InvalidParameterError: anything else differs; the message says what.
    """
    kinds = [metadata.text(PREFIX + "model") for metadata in (model, draft)]
    if kinds[0] != kinds[1]:
        raise _differs(where, "tokenizer.ggml.model", kinds[1], kinds[0])
    own, other = read_vocabulary(model, "model"), read_vocabulary(draft, where)
    n_common = min(len(own), len(other))
    if (token_id := _first_difference(own.strings, other.strings, n_common)) is not None:
        found, need = (_shown(vocabulary.text(token_id)) for vocabulary in (other, own))
        raise _differs(where, f"token {token_id}", found, need)
    for vocabulary, missing in ((own, other), (other, own)):
        _check_padding(vocabulary, n_common, len(missing), where)
    for role in ROLES:
        ids = [role_id(metadata, role, n_common, None) for metadata in (draft, model)]
        if ids[0] != ids[1]:
            raise _differs(where, f"{role.upper()} token", *ids)
    return n_common


def _first_difference(own: StringArray, other: StringArray, n: int) -> int | None:
    """Return the first of `n` texts that differs; tables of equal texts are equal bytes."""
    if np.array_equal(own.lengths[:n], other.lengths[:n]):
        spans = [s.buffer[s.starts[0] : s.starts[n - 1] + s.lengths[n - 1]] for s in (own, other)]
        if np.array_equal(spans[0], spans[1]):
            return None
    return next((i for i in range(n) if own.bytes_at(i) != other.bytes_at(i)), None)


def _check_padding(vocabulary: Vocabulary, first: int, n_other: int, where: str) -> None:
    used = np.flatnonzero(vocabulary.types[first:] != TokenType.UNUSED)
    if len(used):
        token_id = first + int(used[0])
        what = f"{n_other} tokens, without {_shown(vocabulary.text(token_id))}"
        raise _differs(where, "vocabulary", what, f"{len(vocabulary)}, as the other model has")


def _shown(text: bytes) -> str:
    return repr(text.decode(errors="replace"))


def _differs(where: str, what: str, found: object, need: object) -> InvalidParameterError:
    return InvalidParameterError(
        f"draft: {where}: {what}: found {found} (need {need}): a draft guesses for a model of the "
        "same vocabulary; take a smaller model of the same family, or leave `draft` out"
    )
