"""Ask a folder's own tokenizer where it cuts texts and which ids it gives, in another process.

Its regular expressions are whatever the folder's author wrote. Their engine bounds the steps of one
match, not those of a text, so a short expression runs for minutes, and meanwhile the library holds
the interpreter's lock and no Ctrl-C is heard. A process can be stopped.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from edgeinfer.convert.strict_json import Object
from edgeinfer.convert.tokens import foreign_process
from edgeinfer.errors import ModelFormatError, UnsupportedModelError

MOST_S: Final = 30  # a table of 262,144 tokens takes one or two

Cuts = tuple[tuple[str, tuple[int, int]], ...]  # words and where they stand


def own_cuts(pre_tokenizer: Any, text: str, where: str) -> Cuts:
    """Return where the "pre_tokenizer" of a tokenizer.json cuts a text; errors of `own_ids`."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    (found,) = _ask("cuts", {"model": model, "pre_tokenizer": pre_tokenizer}, [text], where)
    return tuple((word, (begin, end)) for word, (begin, end) in found)


def own_ids(raw: Object, texts: list[str], where: str) -> list[list[int]]:
    """Return the ids that a tokenizer.json gives texts, without what it puts around them.

    Raises ModelFormatError if the library refuses it, UnsupportedModelError if it takes longer than
    30 s.
    """
    found: list[list[int]] = _ask("ids", raw, texts, where)
    return found


def _ask(wanted: str, tokenizer: Object, texts: list[str], where: str) -> list[Any]:
    request = {"wanted": wanted, "tokenizer": json.dumps(tokenizer), "texts": texts}
    script = Path(foreign_process.__file__)
    if getattr(sys, "frozen", False) or not sys.executable or not script.is_file():
        answer = foreign_process.answer(request)  # there is no interpreter to start
    else:
        answer = _ask_process(script, request | {"path": sys.path}, where)
    if "error" in answer:
        raise ModelFormatError(f"{where}: the tokenizers library refuses it: {answer['error']}")
    found: list[Any] = answer["found"]
    return found


def _ask_process(script: Path, request: Object, where: str) -> Object:
    # Isolated and without site packages, whose place comes with the request: starts in a tenth of
    # the time, and imports what this process would.
    command = [sys.executable, "-I", "-S", str(script)]
    sent = json.dumps(request).encode()
    try:
        done = subprocess.run(
            command,
            input=sent,
            capture_output=True,
            timeout=MOST_S,
            check=False,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except subprocess.TimeoutExpired:
        longest = max(map(len, request["texts"]))
        raise UnsupportedModelError(
            f"{where}: found it at work on a text of {longest} characters for longer than "
            f"{MOST_S} s (need a tokenizer without regular expressions that try all ways to match)"
        ) from None
    if done.returncode:  # out of memory, or killed
        raise ModelFormatError(
            f"{where}: the tokenizers library ended with exit status {done.returncode}"
        )
    answer: Object = json.loads(done.stdout)
    return answer
