"""The most that an integer flag may say, where the library takes any number."""

from collections.abc import Iterable, Mapping
from typing import Any

from edgeinfer.errors import InvalidParameterError

MOST_COUNT = (1 << 31) - 1  # of tokens, windows, documents: what the library's own ranges end with
MOST_BYTES = (1 << 63) - 1  # of a file, as the system counts them
MOST = {
    "max_tokens": MOST_COUNT,
    "top_n": MOST_COUNT,
    "chunks": MOST_COUNT,
    "frequency": MOST_COUNT,
    "max_bytes": MOST_BYTES,
}


def check_most(values: Mapping[str, Any], params: Iterable[Any]) -> None:
    """Raise InvalidParameterError for a number that no machine counts to: it is a slip.

    `values` are a command's, by parameter name; `params` have `name` and `opts`.
    """
    for param in params:
        found, most = values.get(param.name), MOST.get(param.name)
        if isinstance(found, int) and most is not None and found > most:
            raise InvalidParameterError(f"{param.opts[0]}: found {found} (need at most {most})")
