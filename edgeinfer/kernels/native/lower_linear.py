"""Lower matmuls: those of one input together, a lone one with its residual add, gate with up."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import BLOCK, Instruction, Kind
from edgeinfer.kernels.native.lowering import Lowering
from edgeinfer.program.ops import Add, Gated, Linear
from edgeinfer.program.ops_rowwise import FUNCTIONS

MATMULS = 3  # matrices one MATMUL op may hold

GatedPair = tuple[int, Gated, int, Linear, int, Linear]  # the gate, gate's matmul, up's; by index


def linear(lowering: Lowering, i: int, op: Linear) -> None:
    """Lower a matmul and those that can run with it."""
    if op.scale is not None:
        raise UnsupportedModelError(
            f"native backend: {op.weight.name}: a scale tensor is not implemented"
        )
    pair = _gated_pair(lowering, op)
    if pair is not None:
        _gated(lowering, *pair)
        return
    acts = lowering.acts(op.x)
    group = _group(lowering, i, op)
    add = _residual(lowering, op) if len(group) == 1 else None
    for x in group:
        lowering.observe(x.x, x.weight)
    lowering.emit(
        Instruction(
            Kind.MATMUL,
            op.out.rows,
            inputs=(lowering.buffer(add.a),) if add else (),
            outputs=tuple(lowering.buffer(add.out if add else x.out) for x in group),
            acts_in=acts,
            weights=tuple(x.weight.name for x in group),
            vectors=tuple(x.bias.name if x.bias else None for x in group),
        )
    )


def _group(lowering: Lowering, i: int, op: Linear) -> list[Linear]:
    """Take op and the later matmuls of its input that can share an instruction with it."""
    group = [op]
    for j in lowering.uses.readers(op.x):
        other = lowering.uses.ops[j]
        if j <= i or j in lowering.done or not isinstance(other, Linear) or other.scale:
            continue
        if len(group) < MATMULS and _gated_pair(lowering, other) is None:
            group.append(other)
            lowering.done.add(j)
    return group


def _residual(lowering: Lowering, op: Linear) -> Add | None:
    """Take the add of op's result to a value that is there already, if only it reads it."""
    taker = lowering.uses.sole_taker(op.out, Add)
    if taker is None or taker[1].b is not op.out or taker[1].alpha != 1.0:
        return None
    if not lowering.is_made(taker[1].a):
        return None
    lowering.done.add(taker[0])
    return taker[1]


def _gated_pair(lowering: Lowering, op: Linear) -> GatedPair | None:
    """Find fn(gate x) * (up x) whose only readers are matmuls, with op as gate or up."""
    if lowering.observed:
        return None
    uses = lowering.uses
    taker = uses.sole_taker(op.out, Gated)
    if taker is None or taker[1].fn not in FUNCTIONS:
        return None
    gate = uses.maker(taker[1].g, Linear)
    up = uses.maker(taker[1].u, Linear)
    if gate is None or up is None or gate[1].x is not up[1].x:
        return None
    plain = not any((gate[1].bias, up[1].bias, gate[1].scale, up[1].scale))
    out = taker[1].out
    whole = out.width % BLOCK == 0 and gate[1].out.width == out.width
    if plain and whole and uses.feeds_only(out, Linear):
        return (*taker, *gate, *up)
    return None


def _gated(lowering: Lowering, i: int, op: Gated, j: int, gate: Linear, k: int, up: Linear) -> None:
    lowering.done |= {i, j, k}
    acts = lowering.acts(gate.x)
    lowering.emit(
        Instruction(
            Kind.GATED,
            op.out.rows,
            acts_in=acts,
            acts_out=lowering.new_acts(op.out),
            weights=(gate.weight.name, up.weight.name),
            scalars={"fn": FUNCTIONS.index(op.fn)},
        )
    )
