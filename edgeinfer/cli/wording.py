"""Say in a command's own words what the library says in Python's: --ctx-size for n_ctx."""

import re
from collections.abc import Iterable
from typing import Any

# Arguments that a command takes under another name, since it takes a text such as 900M.
AS_TEXT = {"max_size": "max_bytes", "split_max_size": "split_max_bytes"}


def in_flags(message: str, params: Iterable[Any]) -> str:
    """Return a message with the library's names of arguments turned into a command's flags.

    A name that could be an ordinary word counts at the beginning alone, where errors name what is
    wrong. `params` are the command's, with `name` and `opts`.
    """
    flags = {p.name: p.opts[0] for p in params if p.name and p.opts[0].startswith("-")}
    flags |= {AS_TEXT[name]: flag for name, flag in flags.items() if name in AS_TEXT}
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    pattern = re.compile(rf"^({names})(?=:)|(?<![\w.'\"/-])(?=\w*_)({names})(?![\w.'\"/=])")
    message = re.sub(r", or None(?= for |\))", ", or leave it out", message)
    return pattern.sub(lambda found: flags[found[1] or found[2]], message)
