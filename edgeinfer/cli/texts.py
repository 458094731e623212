"""Collect the texts a command is to read: of its own words, of a file, or of stdin."""

import sys
from pathlib import Path

from edgeinfer.cli.options import STDIN, as_text, read_text
from edgeinfer.errors import InvalidParameterError


def texts_of(given: list[str] | None, file: Path | None) -> list[str]:
    """Return texts that were given, then the lines of a file that are not empty.

    Where there is neither, the lines are those of stdin. Raises InvalidParameterError for no text,
    and for what is not UTF-8: a vector of other characters would go unnoticed.
    """
    texts = list(given or ())
    if file is None and not texts:
        file = STDIN
    if file is not None:
        found = _stdin_text() if file == STDIN else read_text(file)
        texts += [line for line in found.splitlines() if line.strip()]
    if not texts:
        raise InvalidParameterError(
            "texts: found none (give them as arguments, one a line with -f FILE, or on stdin)"
        )
    return texts


def _stdin_text() -> str:
    if sys.stdin.isatty():
        print("type the texts, one a line, Ctrl-D ends them", file=sys.stderr)
    return as_text(sys.stdin.buffer.read(), "stdin")
