"""Hold what closures of ops are made from: addresses of values and weights, kernels, threads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.jit.choice import Choice
from edgeinfer.kernels.jit.compiler import Kernel
from edgeinfer.kernels.jit.formats import PACKINGS, Packing
from edgeinfer.kernels.jit.memory import Acts, Floats, Pages, address, floats
from edgeinfer.kernels.jit.pool import Pool
from edgeinfer.kernels.jit.step import Step
from edgeinfer.program.program import Program
from edgeinfer.program.values import ConstantRef, Value, WeightRef
from edgeinfer.quant.decode import decode
from edgeinfer.quant.tensor import Tensor

Run: TypeAlias = Callable[[Step], None]

ALONE = 1 << 15  # elements of a row kernel that one thread has done before another is awake


@dataclass(slots=True, eq=False)
class Source:
    """What closures are made from; `kept` is memory that addresses point into."""

    program: Program
    tensors: Mapping[str, Tensor]
    values: Mapping[int, Floats]
    pages: Mapping[int, Pages]
    acts: Acts
    scratch: Floats  # (threads, floats of one)
    pool: Pool
    most: Mapping[tuple[int, int], float]  # by value and columns, its largest activation code or 0
    kept: list[Any] = field(default_factory=list)
    vectors: dict[str, Floats] = field(default_factory=dict)
    choices: dict[int, Choice] = field(default_factory=dict)  # by the value of the ids
    quantized: tuple[int, int] | None = None  # the value whose activations the last closure left

    def at(self, value: Value) -> int:
        """Return the address of a value."""
        return address(self.values[value.id])

    def vector(self, ref: WeightRef) -> Floats:
        """Return a weight as one row of float32, with room behind it."""
        if ref.name not in self.vectors:
            whole = decode(self.tensors[ref.name]).reshape(-1)
            self.vectors[ref.name] = floats(len(whole))
            self.vectors[ref.name][:] = whole
        return self.vectors[ref.name]

    def at_vector(self, ref: WeightRef | None) -> int:
        """Return the address of a weight row, 0 for none."""
        return 0 if ref is None else address(self.vector(ref))

    def at_constant(self, ref: ConstantRef | None) -> int:
        """Return the address of a constant, 0 for none."""
        if ref is None:
            return 0
        row = floats(ref.length)
        row[:] = self.program.constant(ref)
        self.kept.append(row)
        return address(row)

    def over_rows(self, kernel: Kernel, value: Value) -> Callable[..., None]:
        """Return `run(step, *args)` of a row kernel over the rows of a value."""
        compiled, pool, kind, width = kernel.compiled, self.pool, value.rows, value.width

        def run(step: Step, *args: Any) -> None:
            n_rows = step.n_rows[kind]
            go = pool.run_alone if n_rows * width < ALONE else pool.run
            go(compiled, n_rows, *args)

        return run


def packing(tensor: Tensor) -> Packing:
    """Return the row of PACKINGS of a tensor's format."""
    if tensor.format.name not in PACKINGS:
        raise UnsupportedModelError(
            f"tensor '{tensor.name}': found format {tensor.format.name} "
            f"(need one of {', '.join(PACKINGS)})"
        )
    return PACKINGS[tensor.format.name]


def refuse(what: str) -> UnsupportedModelError:
    """Return the error for a use of an op that is not there."""
    return UnsupportedModelError(f"jit backend: {what} is not implemented")
