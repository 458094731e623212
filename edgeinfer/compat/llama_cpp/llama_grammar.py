"""Offer `LlamaGrammar`: what an answer must look like, as GBNF or a JSON schema."""

import os
from typing import Any, Self

from edgeinfer.compat.llama_cpp.errors import translated
from edgeinfer.text.grammar import Grammar

LLAMA_GRAMMAR_DEFAULT_ROOT = "root"


class LlamaGrammar:
    """A grammar in GBNF; in llguidance's Lark, too. `edgeinfer` is the Grammar behind it."""

    def __init__(self, *args: Any, _grammar: str | Grammar, **kwargs: Any) -> None:
        with translated():
            made = _grammar if isinstance(_grammar, Grammar) else Grammar.from_text(_grammar)
        self.edgeinfer = made
        self._grammar = _grammar if isinstance(_grammar, str) else made.lark
        self._root = LLAMA_GRAMMAR_DEFAULT_ROOT

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> Self:
        """Return a grammar in GBNF."""
        return cls(_grammar=grammar)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], verbose: bool = True) -> Self:
        """Return the grammar in a file."""
        with translated():
            return cls(_grammar=Grammar.from_file(file))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> Self:
        """Return the grammar of the documents of a JSON schema."""
        with translated():
            return cls(_grammar=Grammar.from_json_schema(json_schema))

    def reset(self) -> None:
        """Do nothing: each answer begins at the grammar's start."""
