"""The flags that say what form an answer must have, spelled as in llama.cpp."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from edgeinfer.cli.options import read_text
from edgeinfer.errors import InvalidParameterError

FORM = "Form of the answer (needs edgeinfer[grammar])"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormFlags:
    """What an answer must look like; one of these at most."""

    grammar: Annotated[
        str | None,
        Option("--grammar", rich_help_panel=FORM, help="A grammar, in GBNF or Lark."),
    ] = None
    grammar_file: Annotated[
        Path | None, Option("--grammar-file", rich_help_panel=FORM, help="The same, in a file.")
    ] = None
    json_schema: Annotated[
        str | None,
        Option(
            "--json-schema", "-j", rich_help_panel=FORM, help="A JSON schema; {} is any JSON value."
        ),
    ] = None
    json_schema_file: Annotated[
        Path | None,
        Option("--json-schema-file", "-jf", rich_help_panel=FORM, help="The same, in a file."),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the keyword argument of `Model.generate`, checked, or nothing."""
        found = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if len(found) > 1:
            names = " and ".join("--" + name.replace("_", "-") for name in found)
            raise InvalidParameterError(f"{names}: found {len(found)} of them (give one)")
        if not found:
            return {}
        from edgeinfer.text.grammar import Grammar

        if self.grammar is not None:
            return {"grammar": Grammar.from_text(self.grammar)}
        if self.grammar_file is not None:
            return {"grammar": Grammar.from_file(self.grammar_file)}
        schema = self.json_schema
        if self.json_schema_file is not None:
            schema = read_text(self.json_schema_file)
        return {"grammar": Grammar.from_json_schema(schema or "")}
