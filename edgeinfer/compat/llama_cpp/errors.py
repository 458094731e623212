"""Raise edgeinfer's errors as the kinds of error that callers of llama-cpp-python catch."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from edgeinfer.errors import (
    ContextOverflowError,
    EdgeInferError,
    GrammarError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    TemplateError,
    UnsupportedModelError,
)


class LlamaValueError(InvalidParameterError, ValueError):
    """A value that cannot be used."""


class LlamaOverflowError(ContextOverflowError, ValueError):
    """A prompt that does not fit the context."""


class LlamaGrammarError(GrammarError, ValueError):
    """A grammar or schema that cannot be kept to."""


class LlamaNotFoundError(ModelNotFoundError, ValueError):
    """No model under this name."""


class LlamaFormatError(ModelFormatError, ValueError):
    """A file that is broken."""


class LlamaModelError(UnsupportedModelError, ValueError):
    """A model that edgeinfer cannot run, or that cannot do what is asked."""


class LlamaTemplateError(TemplateError, ValueError):
    """A chat template that is missing, broken, or refuses the conversation."""


class LlamaReadyError(InvalidParameterError, RuntimeError):
    """A call that the model was not made ready for."""


class LlamaUnsupportedError(InvalidParameterError, NotImplementedError):
    """Something llama-cpp-python offers and edgeinfer does not."""


_KINDS: dict[type[EdgeInferError], tuple[type[EdgeInferError], str]] = {
    ContextOverflowError: (LlamaOverflowError, ""),
    GrammarError: (LlamaGrammarError, ""),
    InvalidParameterError: (LlamaValueError, ""),
    ModelNotFoundError: (LlamaNotFoundError, "Model path does not exist: "),
    ModelFormatError: (LlamaFormatError, "Failed to load model from file: "),
    UnsupportedModelError: (LlamaModelError, ""),
    TemplateError: (LlamaTemplateError, ""),
}


@contextmanager
def translated() -> Iterator[None]:
    """Give an error the class, and some the words, that callers look for."""
    try:
        yield
    except EdgeInferError as error:
        if isinstance(error, ValueError | RuntimeError):
            raise
        for kind, (named, prefix) in _KINDS.items():
            if isinstance(error, kind):
                raise named(prefix + _words(str(error))) from error
        raise


def _words(message: str) -> str:
    """Return the message; of a prompt that is too long, in words that callers may search for."""
    found = re.search(r"found (\d+) tokens.*holds (\d+)", message)
    if found is None:
        return message
    return (
        f"Requested tokens ({found[1]}) exceed context window of {found[2]}; "
        "shorten the prompt, or load the model with a larger n_ctx"
    )
