"""Name `LlamaGrammar`, and say at its first use that there is no constrained output."""

from typing import Any

from edgeinfer.compat.llama_cpp.options import refuse_grammar


class LlamaGrammar:
    """A grammar; making one raises LlamaUnsupportedError, which says what to do instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse_grammar(LlamaGrammar=args or kwargs or "")

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        """Raise LlamaUnsupportedError."""
        return cls(grammar)

    @classmethod
    def from_file(cls, file: Any, verbose: bool = True) -> "LlamaGrammar":
        """Raise LlamaUnsupportedError."""
        return cls(file)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> "LlamaGrammar":
        """Raise LlamaUnsupportedError."""
        return cls(json_schema)
