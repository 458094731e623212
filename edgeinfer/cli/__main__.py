"""Run the command line: arguments in, an exit code out, every failure as one line on stderr."""

import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence

import typer

from edgeinfer.cli.app import Switches, root_command
from edgeinfer.errors import EdgeInferError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_RESOURCE = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143  # 128 + SIGTERM
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a C program's death by it is reported
# Nearly all objects made while a model loads live to the end: looking for garbage among them after
# every 700 new ones, as Python would, takes 8 % of the time to the first token.
COLLECT_AFTER = 100_000

_RESOURCE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Without `args` it is the process's own, and the process is set up for it.
    """
    if args is None:
        gc.set_threshold(COLLECT_AFTER)
        _die_orderly_of_sigterm()
    switches = Switches(debug=os.environ.get("EDGEINFER_DEBUG", "") not in ("", "0"))
    # A terminal that cannot show a character shows a question mark; it does not end the answer.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _run(list(sys.argv[1:] if args is None else args), switches)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if switches.debug:
            import traceback

            traceback.print_exc()
        message, code = describe(error)
        print(f"edgeinfer: error: {message}", file=sys.stderr)
        return code


def _run(args: list[str], switches: Switches) -> int:
    command = root_command()
    try:
        with command.make_context("edgeinfer", args, obj=switches) as ctx:
            command.invoke(ctx)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def _die_orderly_of_sigterm() -> None:
    """Turn SIGTERM into an exit, so that the terminal and part files are put in order."""

    def leave(signum: int, frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)


def describe(error: Exception) -> tuple[str, int]:
    """Return the one-line message and the exit code of a failure."""
    if isinstance(error, EdgeInferError):
        return _one_line(str(error)), error.exit_code
    if isinstance(error, typer.TyperException):
        message = _one_line(error.format_message())
        ctx = getattr(error, "ctx", None)
        hint = f" (see '{ctx.command_path} --help')" if ctx is not None else ""
        return message + hint, error.exit_code
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        code = EXIT_RESOURCE if error.errno in _RESOURCE_ERRNOS else EXIT_FAILURE
        return _one_line(f"{name}{error.strerror or error}"), code
    if isinstance(error, MemoryError):
        return "out of memory (a shorter context, -c, needs less)", EXIT_RESOURCE
    kind = type(error).__name__
    return _one_line(f"internal: {kind}: {error} (run with --debug to see where)"), EXIT_FAILURE


def _one_line(text: str) -> str:
    """Join the lines and make control characters visible: names and files may hold any."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has no reader to miss."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = None


if __name__ == "__main__":
    sys.exit(main())
