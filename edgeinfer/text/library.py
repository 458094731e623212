"""Call Hugging Face's tokenizers as this package needs it: other threads run, no panic gets out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from edgeinfer.errors import ModelFormatError, ResourceError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine

T = TypeVar("T")
PANIC = "PanicException"  # derives from BaseException; it must not end the process
# Longer texts go through the call that lets other threads run meanwhile.
_SHORT = 4096


def built(make: Callable[[], T], where: str) -> T:
    """Return what the library makes of a file's tables. Raises ModelFormatError if it refuses."""
    try:
        return make()
    except BaseException as error:  # it raises a bare Exception, or panics
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise ModelFormatError(f"{where}: the tokenizers library refuses it: {error}") from None


def ids_of(engine: "Engine", text: str) -> list[int]:
    """Return the ids of plain text. Raises ResourceError if the library gives up."""
    try:
        if len(text) <= _SHORT:
            encoding = engine.encode(text, add_special_tokens=False)
        else:
            (encoding,) = engine.encode_batch_fast([text], add_special_tokens=False)
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise ResourceError(
            f"text of {len(text)} characters: the tokenizer gave up ({error}); cut it shorter"
        ) from None
    ids: list[int] = encoding.ids
    return ids
