"""Run code written for llama-cpp-python: `from edgeinfer.compat.llama_cpp import Llama`.

Names, arguments, dicts and exceptions are those of its high-level API. `install` lets programs
whose imports cannot be changed find this module under the name llama_cpp.
"""

import sys
from importlib import import_module
from typing import NoReturn

from edgeinfer import __version__
from edgeinfer.compat.llama_cpp.constants import *  # noqa: F403
from edgeinfer.compat.llama_cpp.errors import (
    LlamaNotFoundError,
    LlamaOverflowError,
    LlamaUnsupportedError,
    LlamaValueError,
)
from edgeinfer.compat.llama_cpp.llama import (
    Llama,
    LlamaState,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from edgeinfer.compat.llama_cpp.llama_cache import LlamaCache, LlamaDiskCache, LlamaRAMCache
from edgeinfer.compat.llama_cpp.llama_grammar import LlamaGrammar
from edgeinfer.compat.llama_cpp.llama_tokenizer import LlamaTokenizer
from edgeinfer.compat.llama_cpp.llama_types import *  # noqa: F403

__all__ = [
    "Llama",
    "LlamaCache",
    "LlamaDiskCache",
    "LlamaGrammar",
    "LlamaNotFoundError",
    "LlamaOverflowError",
    "LlamaRAMCache",
    "LlamaState",
    "LlamaTokenizer",
    "LlamaUnsupportedError",
    "LlamaValueError",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "StoppingCriteriaList",
    "__version__",
    "install",
    "llama_supports_gpu_offload",
    "llama_supports_mlock",
    "llama_supports_mmap",
]

_MODULES = (
    *("llama", "llama_cache", "llama_chat_format", "llama_grammar", "llama_speculative"),
    *("llama_tokenizer", "llama_types"),
)


def install() -> None:
    """Let `import llama_cpp`, by any program in this process, find this module.

    Raises LlamaValueError if llama-cpp-python itself was imported before.
    """
    found = sys.modules.get("llama_cpp")
    if found is not None and found is not sys.modules[__name__]:
        raise LlamaValueError(
            "install: llama_cpp is imported already (need to call this before): "
            f"{getattr(found, '__file__', 'it')} stays"
        )
    sys.modules["llama_cpp"] = sys.modules[__name__]
    for name in _MODULES:
        sys.modules[f"llama_cpp.{name}"] = import_module(f"{__name__}.{name}")


def llama_supports_gpu_offload() -> bool:
    """Return False: everything runs on the CPU."""
    return False


def llama_supports_mmap() -> bool:
    """Return True: model files are mapped."""
    return True


def llama_supports_mlock() -> bool:
    """Return False: memory is not locked."""
    return False


def __getattr__(name: str) -> NoReturn:
    if name.startswith(("llama_", "ggml_")):
        raise AttributeError(
            f"{name}: the C functions of llama.cpp are not here; use the methods of Llama, or "
            "edgeinfer.Model"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
