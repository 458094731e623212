"""Raise edgeinfer's errors as the kinds of error that callers of llama-cpp-python catch."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from edgeinfer.errors import (
    ContextOverflowError,
    InvalidParameterError,
    ModelNotFoundError,
)


class LlamaValueError(InvalidParameterError, ValueError):
    """A value that cannot be used."""


class LlamaOverflowError(ContextOverflowError, ValueError):
    """A prompt that does not fit the context."""


class LlamaNotFoundError(ModelNotFoundError, ValueError):
    """No model under this name."""


class LlamaUnsupportedError(InvalidParameterError, NotImplementedError):
    """Something llama-cpp-python offers and edgeinfer does not."""


@contextmanager
def translated() -> Iterator[None]:
    """Give an error the class, and an overflow the words, that callers look for."""
    try:
        yield
    except (LlamaValueError, LlamaOverflowError, LlamaNotFoundError, LlamaUnsupportedError):
        raise
    except ContextOverflowError as error:
        raise LlamaOverflowError(_overflow_words(str(error))) from error
    except InvalidParameterError as error:
        raise LlamaValueError(str(error)) from error
    except ModelNotFoundError as error:
        raise LlamaNotFoundError(f"Model path does not exist: {error}") from error


def _overflow_words(message: str) -> str:
    found = re.search(r"found (\d+) tokens.*holds (\d+)", message)
    if found is None:
        return message
    return (
        f"Requested tokens ({found[1]}) exceed context window of {found[2]}; "
        "shorten the prompt, or load the model with a larger n_ctx"
    )
