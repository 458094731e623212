"""Hold a ready model and answer with it: text -> tokens -> engine -> tokens -> text."""

from edgeinfer.llm.awaiting import Model

__all__ = ["Model"]
