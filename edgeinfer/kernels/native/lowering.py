"""Hold a lowering that is under way: the instructions so far, and which buffer holds each value."""

from collections.abc import Callable, Collection, Iterable, Mapping

from edgeinfer.kernels.native.heads import plan_heads
from edgeinfer.kernels.native.instructions import ONES, Acts, Buffer, Instruction, Kind, Routing
from edgeinfer.kernels.native.uses import Uses
from edgeinfer.program.ops import ExpertLinear, Linear, RmsNorm, Route
from edgeinfer.program.program import Program
from edgeinfer.program.values import Rows, Value, WeightRef
from edgeinfer.quant.tensor import Tensor


class Lowering:
    """What each op reads and extends when it is lowered.

    Attributes:
        program: what is lowered.
        uses: who reads and writes each value.
        heads: what the KV append at each op index does besides.
        observed: names of the matrices whose inputs are summed.
        done: indices of the ops that an instruction stands for already.
        instructions: the result so far.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        is_fine: Callable[[str], bool],
        observed: Collection[str] = (),
    ) -> None:
        self.program = program
        self.uses = Uses(program)
        self.heads = plan_heads(program, self.uses)
        self.done = {i for plan in self.heads.values() for i in plan.absorbed}
        self.observed = observed
        self.instructions: list[Instruction] = []
        self._tensors = tensors
        self._is_fine = is_fine
        self._buffers: dict[int, Buffer] = {}
        self._acts: dict[int, Acts] = {}
        self._slot_acts: dict[int, Acts] = {}
        self._routings: dict[int, Routing] = {}
        self._head_routings: dict[tuple[Rows, int], Routing] = {}

    def emit(self, instruction: Instruction) -> None:
        """Add the next instruction."""
        self.instructions.append(instruction)

    def observe(self, x: Value, weight: WeightRef, routing: Routing | None = None) -> None:
        """Sum the squares of a value that a matrix is about to multiply, if that is wanted."""
        if weight.name in self.observed:
            inputs = (self.buffer(x),)
            self.emit(
                Instruction(
                    Kind.OBSERVE, x.rows, inputs=inputs, routing=routing, observed=weight.name
                )
            )

    def is_made(self, value: Value) -> bool:
        """Return whether an instruction so far leaves this value in a buffer."""
        return value.id in self._buffers

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value."""
        if value.id not in self._buffers:
            self._buffers[value.id] = Buffer(value.width, value.rows)
        return self._buffers[value.id]

    def acts(self, value: Value) -> Acts:
        """Return a value's activations, made from its buffer now if no op has left them yet."""
        if value.id not in self._acts:
            inputs, acts = (self.buffer(value),), self.new_acts(value)
            self.emit(Instruction(Kind.NORM, value.rows, inputs=inputs, acts_out=acts))
        return self._acts[value.id]

    def new_acts(self, value: Value) -> Acts:
        """Declare a value's activations, in the forms its matmuls need."""
        acts = Acts(value.width, value.rows)
        for op in self.multipliers(value):
            self.add_form(acts, op.weight)
        self._acts[value.id] = acts
        return acts

    def left_acts(self, value: Value) -> Acts | None:
        """Declare the activations that the op which makes a value leaves, if matmuls read it."""
        return self.new_acts(value) if self.multipliers(value) else None

    def multipliers(self, value: Value) -> list[Linear | ExpertLinear]:
        """List the matmuls that read a value as one row."""
        ops = (self.uses.ops[i] for i in self.uses.readers(value))
        return [
            op
            for op in ops
            if isinstance(op, Linear)
            or (isinstance(op, ExpertLinear) and op.weight.shape[2] == value.width)
        ]

    def add_form(self, acts: Acts, weight: WeightRef) -> None:
        """Declare that activations are to be multiplied by a matrix."""
        if self._tensors[weight.name].format.block_size > 1:
            acts.integers = True
            acts.fine = acts.fine or self._is_fine(weight.name)
        else:
            acts.floats = True

    # -- experts -----------------------------------------------------------------------------------

    def new_routing(self, route: Route) -> Routing:
        """Declare the choice that a route makes."""
        sizes = (route.logits.width, route.ids.width)
        routing = self._routings[route.ids.id] = Routing(*sizes, route)
        return routing

    def every_head(self, rows: Rows, n_heads: int) -> Routing:
        """Return the routing of rows to all of so many matrices, made at its first use."""
        if (rows, n_heads) not in self._head_routings:
            routing = self._head_routings[rows, n_heads] = Routing(n_heads, n_heads)
            self.emit(Instruction(Kind.ROUTE, rows, routing=routing))
        return self._head_routings[rows, n_heads]

    def routing(self, ids: Value) -> Routing:
        """Return the choice that made these ids."""
        return self._routings[ids.id]

    def gathered(self, x: Value, n_slots: int, ops: Iterable[ExpertLinear]) -> Acts:
        """Declare what an op needs of a row for its slots: a copy of its activations for each."""
        shared = self.acts(x)
        acts = Acts(x.width, x.rows, n_slots)
        for op in ops:
            self.add_form(acts, op.weight)
        acts.fine = acts.integers and shared.fine
        return acts

    def slot_acts(self, value: Value) -> Acts | None:
        """Return the activations of a value with one row a slot, if an op has left them."""
        return self._slot_acts.get(value.id)

    def new_slot_acts(self, value: Value, n_slots: int) -> Acts:
        """Declare the activations of such a value, in the forms its experts need."""
        acts = Acts(value.width // n_slots, value.rows, n_slots)
        for i in self.uses.readers(value):
            op = self.uses.ops[i]
            if isinstance(op, ExpertLinear) and op.weight.shape[2] == acts.width:
                self.add_form(acts, op.weight)
        self._slot_acts[value.id] = acts
        return acts


def norm_vector(norm: RmsNorm | None) -> str | None:
    """Name the vector of a norm, which may have no weight; None for no norm."""
    if norm is None:
        return None
    return norm.weight.name if norm.weight else ONES
