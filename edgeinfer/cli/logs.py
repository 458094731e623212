"""Show the library's warnings on stderr, one line each, in the form of the CLI's errors."""

import logging
import sys

LOGGER = logging.getLogger("edgeinfer")


class StderrLog(logging.Handler):
    """Writes to whatever stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(record.getMessage().split())
        print(f"edgeinfer: {record.levelname.lower()}: {message}", file=sys.stderr)


def show_warnings() -> None:
    """Let warnings and worse be seen; what is less stays quiet."""
    if not any(isinstance(handler, StderrLog) for handler in LOGGER.handlers):
        LOGGER.addHandler(StderrLog())


def show_all() -> None:
    """Let every message be seen."""
    LOGGER.setLevel(logging.DEBUG)
