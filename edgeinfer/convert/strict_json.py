"""Read JSON from files that anyone may have written: each key of an object once, no NaN.

Knows nothing of what the objects mean.
"""

import json
import math
from pathlib import Path
from typing import Any

from edgeinfer.errors import ModelFormatError, ModelNotFoundError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display

MAX_DIGITS = 19  # so that integers have 64 bits
MAX_BYTES = 256 << 20  # the largest tokenizer.json has 40 MB
_NOT_FETCHED = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file: run `git lfs pull` there"),
    (b"<!doctype", "an HTML page, not the file: the download failed, fetch it again"),
    (b"<html", "an HTML page, not the file: the download failed, fetch it again"),
)

Object = dict[str, Any]


def read_object(path: Path, *, infinite: bool = False) -> Object:
    """Return the object a file holds; `infinite`: numbers may be infinite.

    Raises ModelNotFoundError if there is no such file, ModelFormatError if it is not JSON, too
    large or nested too deep, or names a key twice.
    """
    return parse_object(_read(path), display(path), infinite=infinite)


def read_objects(path: Path) -> list[Object]:
    """Return the list of objects a file holds; raises as `read_object` does."""
    where = display(path)
    found = _parsed(_read(path), where)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ModelFormatError(f"{where}: found a {type(found).__name__} (need a list of objects)")
    return found


def read_text(path: Path) -> str:
    """Return what a file of UTF-8 says; raises as `read_object` does."""
    try:
        return _read(path).decode()
    except UnicodeDecodeError:
        raise ModelFormatError(f"{display(path)}: not UTF-8") from None


def _read(path: Path) -> bytes:
    where = display(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelNotFoundError(f"{where}: {error.strerror or error}") from None
    check_fetched(where, raw)
    if len(raw) > MAX_BYTES:
        raise ModelFormatError(f"{where}: found more than {MAX_BYTES} bytes (need at most these)")
    return raw


def check_fetched(where: str, head: bytes) -> None:
    """Raise ModelFormatError if a file begins like what stands in for one that was not fetched."""
    for start, what in _NOT_FETCHED:
        if head[: len(start)].lower() == start:
            raise ModelFormatError(f"{where}: found {what}")


def parse_object(raw: bytes, where: str, *, infinite: bool = False) -> Object:
    """Return the object that bytes hold; raises ModelFormatError."""
    found = _parsed(raw, where, infinite=infinite)
    if not isinstance(found, dict):
        raise ModelFormatError(f"{where}: found a {type(found).__name__} (need a JSON object)")
    return found


def _parsed(raw: bytes, where: str, *, infinite: bool = False) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> Object:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ModelFormatError(f"{where}: key {quote(twice)}: found twice (need each key once)")
        return found

    def constant(name: str) -> float:
        if infinite and name == "Infinity":
            return math.inf
        raise ModelFormatError(f"{where}: found {name} (need finite numbers)")

    def real(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else constant(digits[:40])

    def whole(digits: str) -> int | float:
        # Some files write 10**30 for "as much as you like", which no integer of ours is.
        return int(digits) if len(digits) <= MAX_DIGITS else real(digits)

    try:
        return json.loads(
            raw,
            object_pairs_hook=once,
            parse_constant=constant,
            parse_float=real,
            parse_int=whole,
        )
    except RecursionError:
        raise ModelFormatError(f"{where}: JSON nested too deep") from None
    except ValueError as error:
        raise ModelFormatError(f"{where}: not JSON: {error}; the file is damaged") from None
