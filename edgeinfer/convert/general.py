"""Make the metadata that says what a file is, and take what its user adds."""

from collections.abc import Mapping
from pathlib import Path

from edgeinfer.convert.keys import Keys, f32, flag, text, texts, u32
from edgeinfer.errors import InvalidParameterError
from edgeinfer.quant.formats import Format
from edgeinfer.quant.recipe import QUANTIZATION_VERSION, recipe_named
from edgeinfer.writer.entries import Entry

PREFIX = "general."


def general_keys(folder: Path, arch: str, format: Format) -> Keys:
    """Return architecture, name and kind of a file."""
    return [
        text("general.architecture", arch),
        text("general.type", "model"),
        text("general.name", folder.resolve().name),
        u32("general.quantization_version", QUANTIZATION_VERSION),
        u32("general.file_type", recipe_named(format.name).file_type),
    ]


def more_metadata(given: Mapping[str, object]) -> Keys:
    """Return what a user gave as entries.

    Raises InvalidParameterError for a key that is not general, or a value of no type of the format.
    """
    return [_entry(key, value) for key, value in given.items()]


def _entry(key: str, value: object) -> Entry:
    if not key.startswith(PREFIX) or key == "general.architecture":
        raise InvalidParameterError(
            f"metadata: found key {key!r} (need {PREFIX}name, {PREFIX}license and the like: others "
            "say how the model computes)"
        )
    if isinstance(value, bool):
        return flag(key, value)
    if isinstance(value, str):
        return text(key, value)
    if isinstance(value, int) and 0 <= value < 1 << 32:
        return u32(key, value)
    if isinstance(value, float):
        return f32(key, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return texts(key, value)
    raise InvalidParameterError(f"metadata: key {key!r}: found {value!r} (need text or a number)")
