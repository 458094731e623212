"""Offer the public names; the heavy ones are imported at their first use."""

from importlib import import_module

from edgeinfer.errors import (
    BackendError,
    CancelledError,
    ContextOverflowError,
    EdgeInferError,
    GrammarError,
    InvalidParameterError,
    MissingTensorError,
    ModelClosedError,
    ModelFormatError,
    ModelNotFoundError,
    NonFiniteError,
    ResourceError,
    SessionError,
    TemplateError,
    UnsupportedModelError,
)

# Type checkers take a variable of this name for true; importing typing costs 5 ms.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from edgeinfer.completion import Completion
    from edgeinfer.llm.keeping import Session
    from edgeinfer.llm.vectors import Ranked
    from edgeinfer.model import Model, load
    from edgeinfer.shrinking.quantize import quantize
    from edgeinfer.shrinking.report import QuantizeReport
    from edgeinfer.sizing import Estimate, estimate
    from edgeinfer.text.grammar import Grammar
    from edgeinfer.text.tokenizer import Tokenizer, load_tokenizer

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CancelledError",
    "Completion",
    "ContextOverflowError",
    "EdgeInferError",
    "Estimate",
    "Grammar",
    "GrammarError",
    "InvalidParameterError",
    "MissingTensorError",
    "Model",
    "ModelClosedError",
    "ModelFormatError",
    "ModelNotFoundError",
    "NonFiniteError",
    "QuantizeReport",
    "Ranked",
    "ResourceError",
    "Session",
    "SessionError",
    "TemplateError",
    "Tokenizer",
    "UnsupportedModelError",
    "__version__",
    "estimate",
    "load",
    "load_tokenizer",
    "quantize",
]

_HOME = {
    "Completion": "edgeinfer.completion",
    "Estimate": "edgeinfer.sizing",
    "Grammar": "edgeinfer.text.grammar",
    "Model": "edgeinfer.model",
    "QuantizeReport": "edgeinfer.shrinking.report",
    "Ranked": "edgeinfer.llm.vectors",
    "Session": "edgeinfer.llm.keeping",
    "Tokenizer": "edgeinfer.text.tokenizer",
    "estimate": "edgeinfer.sizing",
    "load": "edgeinfer.model",
    "load_tokenizer": "edgeinfer.text.tokenizer",
    "quantize": "edgeinfer.shrinking.quantize",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'edgeinfer' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
