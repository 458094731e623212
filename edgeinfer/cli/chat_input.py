"""Turn typed lines into messages: what continues on the next line, what the marks stand for."""

import sys
from collections.abc import Iterator
from typing import BinaryIO

FENCE = '"""'


def is_complete(text: str) -> bool:
    """Tell whether Enter sends `text`: no fence is open and no backslash ends it."""
    opened = text.lstrip()
    if opened.startswith(FENCE):
        rest = opened[len(FENCE) :].rstrip()
        return rest.endswith(FENCE)
    return not text.endswith("\\")


def unfold(text: str) -> str:
    '''Return the message that `text` stands for, without the fence or the trailing backslashes.

    Inside """ ... """ everything is kept as it is, backslashes too, and nothing is a command: such
    a message keeps a newline before its slash.
    '''
    opened = text.strip()
    if opened.startswith(FENCE):
        body = opened[len(FENCE) :].removesuffix(FENCE)
        body = body.removeprefix("\n").removesuffix("\n")
        return f"\n{body}" if body.startswith("/") else body
    return text.replace("\\\n", "\n").removesuffix("\\").rstrip()


def messages_from(stream: BinaryIO) -> Iterator[str]:
    """Yield the messages of a piped input, one a line unless a line continues.

    Bytes that are not UTF-8 become U+FFFD, with one warning on stderr.
    """
    typed = ""
    warned = False
    for line in stream:
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        if not warned and "\ufffd" in text and b"\xef\xbf\xbd" not in line:
            print("edgeinfer: warning: the input holds bytes that are not UTF-8", file=sys.stderr)
            warned = True
        typed = f"{typed}\n{text}" if typed else text
        if is_complete(typed):
            yield unfold(typed)
            typed = ""
    if typed:
        yield unfold(typed)
