"""Give every buffer and activation set of a step its storage; what never overlaps in time shares.

In go instructions, out comes the list of storages; `number` of each buffer is an index into it.
"""

from collections.abc import Hashable, Iterable

from edgeinfer.kernels.native.instructions import Acts, Buffer, Instruction, Kind, Lowered

# Each element of these ops' results depends on that element of their operands alone (or on a row
# read before it is written), so a result may take the storage of an operand that ends there.
IN_PLACE = (
    *(Kind.NORM, Kind.LAYER_NORM, Kind.MATMUL, Kind.ACT, Kind.GATE, Kind.ADD, Kind.MULTIPLY),
    Kind.SCALE,
)


def place(lowered: Lowered) -> tuple[list[Buffer], list[Acts]]:
    """Number the buffers and the activations; return one of each storage, in number order."""
    last: dict[int, int] = {}
    for at, instruction in enumerate(lowered.instructions):
        for item in (*instruction.reads(), *instruction.writes()):
            last[id(item)] = at
    for kept in (lowered.logits, lowered.hidden):
        if kept is not None:
            last[id(kept)] = len(lowered.instructions)
    stores = Stores()
    for at, instruction in enumerate(lowered.instructions):
        ended = _unique(item for item in instruction.reads() if last[id(item)] == at)
        if instruction.kind is Kind.HEADS:
            ended = _turn_in_place(instruction, ended)
        early = [b for b in ended if isinstance(b, Buffer) and instruction.kind in IN_PLACE]
        stores.release(early)
        written = _unique(item for item in instruction.writes() if item.number < 0)
        for item in written:
            stores.assign(item)
        stores.release(item for item in ended if item not in early)
        stores.release(item for item in written if last[id(item)] == at)
    return stores.buffers, stores.acts


def _turn_in_place(instruction: Instruction, ended: list[Buffer | Acts]) -> list[Buffer | Acts]:
    """Let q and k each keep their own storage; neither may take that of another operand."""
    for before, after in zip(instruction.inputs, instruction.outputs, strict=False):
        if before is not None and after is not None and before in ended and after.number < 0:
            after.number = before.number
            ended = [item for item in ended if item is not before]
    return ended


class Stores:
    """The storages so far and those free to be used again."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.acts: list[Acts] = []
        self._free: dict[Hashable, list[int]] = {}

    def assign(self, item: Buffer | Acts) -> None:
        """Give an item a free storage of its kind, or one of its own."""
        free = self._free.get(_key(item))
        if free:
            item.number = free.pop()
        elif isinstance(item, Buffer):
            item.number = len(self.buffers)
            self.buffers.append(item)
        else:
            item.number = len(self.acts)
            self.acts.append(item)

    def release(self, items: Iterable[Buffer | Acts]) -> None:
        """Let later items use these items' storages."""
        for item in items:
            self._free.setdefault(_key(item), []).append(item.number)


def _unique(items: Iterable[Buffer | Acts]) -> list[Buffer | Acts]:
    return list({id(item): item for item in items}.values())


def _key(item: Buffer | Acts) -> Hashable:
    if isinstance(item, Buffer):
        return (item.width,)
    return (item.width, item.rows, item.slots, item.integers, item.fine, item.floats)
