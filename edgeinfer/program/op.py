"""Give every op one walk over what it reads, writes and weighs, and its range checks."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar, get_args

from edgeinfer.errors import ModelFormatError
from edgeinfer.program.values import ConstantRef, Value, WeightRef

# Names of the fields that are no results and of those that are, for each op seen: the walks below
# run several times over every op of a program.
_NAMES: "dict[type[Op], tuple[tuple[str, ...], tuple[str, ...]]]" = {}


def _names(kind: "type[Op]") -> tuple[tuple[str, ...], tuple[str, ...]]:
    if kind not in _NAMES:
        names = (field.name for field in fields(kind))
        _NAMES[kind] = (tuple(n for n in names if n not in kind.WRITES), kind.WRITES)
    return _NAMES[kind]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One instruction. The fields named in `WRITES` are results, all other values are operands.

    Ops are told apart by identity. Comparison and repr are not generated for each of the 25
    classes because that is a quarter of what importing them costs (8 of 31 ms).
    """

    NAME: ClassVar[str] = ""
    WRITES: ClassVar[tuple[str, ...]] = ("out",)

    def __repr__(self) -> str:
        values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{type(self).__name__}({', '.join(values)})"

    def _flat(self, of_results: bool) -> Iterator[object]:
        for name in _names(type(self))[of_results]:
            item = getattr(self, name)
            if isinstance(item, tuple):
                yield from item
            else:
                yield item

    def reads(self) -> tuple[Value, ...]:
        """List the operands that are values, in field order."""
        return tuple(item for item in self._flat(False) if isinstance(item, Value))

    def writes(self) -> tuple[Value, ...]:
        """List the results, in field order."""
        return tuple(item for item in self._flat(True) if isinstance(item, Value))

    def weights(self) -> tuple[WeightRef, ...]:
        """List the tensors of the file this op needs, in field order."""
        return tuple(item for item in self._flat(False) if isinstance(item, WeightRef))

    def constants(self) -> tuple[ConstantRef, ...]:
        """List the program's constants this op needs, in field order."""
        return tuple(item for item in self._flat(False) if isinstance(item, ConstantRef))

    def attributes(self) -> dict[str, object]:
        """Map the names of the attributes that differ from their default to their values."""
        found: dict[str, object] = {}
        for field in fields(self):
            item = getattr(self, field.name)
            flat = item if isinstance(item, tuple) else (item,)
            if any(isinstance(part, (Value, WeightRef, ConstantRef)) for part in flat):
                continue
            if item != field.default:
                found[field.name] = item
        return found

    def fail(self, what: str, found: object, need: str) -> ModelFormatError:
        """Make the error for an attribute or size outside its range."""
        at = next((f" for {ref.name}" for ref in self.weights()), "")
        return ModelFormatError(f"program: op {self.NAME}{at}: {what}: found {found} (need {need})")

    def need(self, holds: bool, what: str, found: object, need: str) -> None:
        """Raise ModelFormatError unless `holds`."""
        if not holds:
            raise self.fail(what, found, need)

    def need_choice(self, what: str, found: str, literal: object) -> None:
        """Raise unless `found` is one of the words of a `Literal` type."""
        words = get_args(literal)
        self.need(found in words, what, repr(found), "one of " + ", ".join(words))

    def need_finite(self, **numbers: float) -> None:
        """Raise unless every number is finite."""
        for name, number in numbers.items():
            self.need(isfinite(number), name, number, "a finite number")

    def need_width(self, what: str, value: Value, width: int) -> None:
        """Raise unless a value has this width."""
        self.need(value.width == width, f"width of {what}", value.width, str(width))

    def need_shape(self, what: str, ref: WeightRef | None, *shapes: tuple[int, ...]) -> None:
        """Raise unless a weight is absent or has one of these shapes."""
        if ref is not None:
            allowed = " or ".join(str(shape) for shape in shapes)
            self.need(ref.shape in shapes, f"shape of {what}", ref.shape, allowed)

    def need_groups(self, value: Value, groups: int, what: str = "groups") -> None:
        """Raise unless `groups` is positive and divides the value's width."""
        holds = groups >= 1 and value.width % groups == 0
        self.need(holds, what, groups, f"1 or more, dividing the width {value.width}")

    def need_same_rows(self, *values: Value) -> None:
        """Raise unless all values have the same rows."""
        kinds = {value.rows for value in values}
        self.need(len(kinds) == 1, "rows", sorted(kind.value for kind in kinds), "one kind")

    def need_like(self, out: Value, x: Value) -> None:
        """Raise unless `out` has the rows and width of `x`."""
        self.need_width("out", out, x.width)
        self.need_same_rows(out, x)
