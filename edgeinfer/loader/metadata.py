"""Answer typed questions about a model file's metadata, with errors that name the key."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import Value, quote
from edgeinfer.loader.strings import StringArray

T = TypeVar("T")

# The default of a key that must be there. Typed Any so that `default: T = REQUIRED` leaves T
# unsolved, and the result plain, where no default is given.
REQUIRED: Final[Any] = object()


class Metadata(Mapping[str, Value]):
    """The key-value pairs of a model file, in file order.

    As a mapping it gives raw values: int, float, bool, str, a NumPy array (a read-only view of the
    file, not always aligned) or a StringArray. The methods give checked ones: each raises
    ModelFormatError, naming key, found and allowed, if the key is missing and no default was given,
    or if the value has the wrong type or range. Numbers are never parsed from strings, and a flag
    is never a number. Defaults are returned unchecked.

    A key may begin with a dot: ".block_count" means "<general.architecture>.block_count".
    """

    __slots__ = ("_types", "_values", "_where")

    def __init__(
        self,
        values: Mapping[str, Value],
        *,
        where: str = "metadata",
        types: Mapping[str, str] | None = None,
    ) -> None:
        """Take the values; `where` heads each message, `types` are GGUF's names of the types."""
        self._values = dict(values)
        self._where = where
        self._types = dict(types or {})

    @property
    def where(self) -> str:
        """The file, for messages."""
        return self._where

    @property
    def arch(self) -> str:
        """The architecture the file says it has."""
        return self.text("general.architecture")

    def __getitem__(self, key: str) -> Value:
        return self._values[self.full_key(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def full_key(self, key: str) -> str:
        """Return the key with the architecture in front if it begins with a dot."""
        return self.arch + key if key.startswith(".") else key

    def replaced(self, key: str, value: Value) -> "Metadata":
        """Return the same metadata with another value of a key."""
        values = self._values | {self.full_key(key): value}
        return Metadata(values, where=self._where, types=self._types)

    def type_name(self, key: str) -> str:
        """Return GGUF's name of a value's type: "u32", "str[49152]"; "" if not from a file."""
        return self._types.get(self.full_key(key), "")

    def error(self, key: str, message: str) -> ModelFormatError:
        """Return an error about a key, for checks that only the caller can make."""
        return ModelFormatError(f"{self._where}: key {quote(self.full_key(key), 120)}: {message}")

    def integer(
        self,
        key: str,
        default: T = REQUIRED,
        *,
        least: int | None = None,
        most: int | None = None,
    ) -> int | T:
        """Return an integer in [least, most]."""
        found = self._find(key, default)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong_type(key, found, "an integer")
        self._check_range(key, found, least, most)
        return found

    def number(
        self,
        key: str,
        default: T = REQUIRED,
        *,
        above: float | None = None,
        least: float | None = None,
        most: float | None = None,
    ) -> float | T:
        """Return a finite number greater than `above` and in [least, most]; integers count."""
        found = self._find(key, default)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self._wrong_type(key, found, "a number")
        if not math.isfinite(found):
            raise self.error(key, f"found {found} (need a finite number)")
        if above is not None and found <= above:
            raise self.error(key, f"found {found} (need more than {above})")
        self._check_range(key, found, least, most)
        return float(found)

    def text(self, key: str, default: T = REQUIRED) -> str | T:
        """Return a string."""
        found = self._find(key, default)
        if found is None:
            return default
        if not isinstance(found, str):
            raise self._wrong_type(key, found, "a string")
        return found

    def flag(self, key: str, default: T = REQUIRED) -> bool | T:
        """Return a bool."""
        found = self._find(key, default)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self._wrong_type(key, found, "a bool")
        return found

    def integers(self, key: str, default: T = REQUIRED) -> npt.NDArray[np.integer[Any]] | T:
        """Return an array of integers, (n,), of the width stored in the file."""
        return self._array(key, default, "iu", "an array of integers")

    def numbers(self, key: str, default: T = REQUIRED) -> npt.NDArray[np.floating[Any]] | T:
        """Return an array of floats, (n,), of the width stored in the file; may hold NaN."""
        return self._array(key, default, "f", "an array of floats")

    def flags(self, key: str, default: T = REQUIRED) -> npt.NDArray[np.bool_] | T:
        """Return an array of bools, (n,)."""
        return self._array(key, default, "b", "an array of bools")

    def strings(self, key: str, default: T = REQUIRED) -> StringArray | T:
        """Return an array of strings, still in the file."""
        found = self._find(key, default)
        if found is None:
            return default
        if not isinstance(found, StringArray):
            raise self._wrong_type(key, found, "an array of strings")
        return found

    def per_layer(
        self,
        key: str,
        n_layers: int,
        default: T = REQUIRED,
        *,
        least: int | None = None,
        most: int | None = None,
    ) -> tuple[int, ...] | T:
        """Return one integer in [least, most] a layer; bools count as 0 and 1.

        The file holds one value for all layers or an array of exactly `n_layers`.
        """
        found = self._find(key, default)
        if found is None:
            return default
        if isinstance(found, int):
            values = (int(found),) * n_layers
        elif isinstance(found, np.ndarray) and found.dtype.kind in "iub":
            if len(found) != n_layers:
                raise self.error(key, f"found {len(found)} values (need {n_layers}, one a layer)")
            values = tuple(int(value) for value in found.tolist())
        else:
            raise self._wrong_type(key, found, "an integer or an array of integers")
        for value in set(values):
            self._check_range(key, value, least, most)
        return values

    def _find(self, key: str, default: object) -> Value | None:
        found = self._values.get(self.full_key(key))
        if found is None and default is REQUIRED:
            raise self.error(key, "missing (this model needs it); the file is incomplete")
        return found

    def _array(self, key: str, default: T, kinds: str, need: str) -> npt.NDArray[Any] | T:
        found = self._find(key, default)
        if found is None:
            return default
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds:
            raise self._wrong_type(key, found, need)
        return found

    def _check_range(self, key: str, found: float, least: float | None, most: float | None) -> None:
        if (least is None or found >= least) and (most is None or found <= most):
            return
        if most is None:
            allowed = f"at least {least}"
        elif least is None:
            allowed = f"at most {most}"
        else:
            allowed = f"{least} to {most}"
        raise self.error(key, f"found {found} (need {allowed})")

    def _wrong_type(self, key: str, found: Value, need: str) -> ModelFormatError:
        return self.error(key, f"found {_describe(found)} (need {need})")


def _describe(value: Value) -> str:
    if isinstance(value, StringArray):
        return f"an array of {len(value)} strings"
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)} {value.dtype.name} values"
    if isinstance(value, str):
        return f"the string {quote(value)}"
    if isinstance(value, list | dict):  # of a JSON file
        return f"a {type(value).__name__}"
    return f"the {type(value).__name__} {value}"
