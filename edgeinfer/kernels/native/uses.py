"""Answer who reads and who writes each value of a program, for the patterns of the lowering."""

from typing import TypeVar

from edgeinfer.program.op import Op
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value

T = TypeVar("T", bound=Op)


class Uses:
    """The readers and the writer of every value, by op index."""

    def __init__(self, program: Program) -> None:
        self.ops = program.ops
        self.writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._outputs = {value.id for value in program.outputs.values()}
        for i, op in enumerate(program.ops):
            for value in op.reads():
                self._readers.setdefault(value.id, []).append(i)
            for value in op.writes():
                self.writer[value.id] = i

    def readers(self, value: Value) -> list[int]:
        """List the indices of the ops that read a value, each as often as it reads it."""
        return self._readers.get(value.id, [])

    def sole_reader(self, value: Value) -> int | None:
        """Return the one op that reads a value, or None if there are several or it is an output."""
        readers = self.readers(value)
        return readers[0] if len(readers) == 1 and value.id not in self._outputs else None

    def maker(self, value: Value, kind: type[T]) -> tuple[int, T] | None:
        """Return the op of this kind that wrote a value which only one op reads."""
        i = self.writer.get(value.id)
        if i is None or self.sole_reader(value) is None:
            return None
        op = self.ops[i]
        return (i, op) if isinstance(op, kind) else None

    def sole_taker(self, value: Value, kind: type[T]) -> tuple[int, T] | None:
        """Return the op of this kind that alone reads a value."""
        i = self.sole_reader(value)
        if i is None:
            return None
        op = self.ops[i]
        return (i, op) if isinstance(op, kind) else None

    def feeds_only(self, value: Value, kind: type[T]) -> bool:
        """Tell whether a value has readers and all are of this kind."""
        readers = self.readers(value)
        return (
            bool(readers)
            and value.id not in self._outputs
            and all(isinstance(self.ops[i], kind) for i in readers)
        )
