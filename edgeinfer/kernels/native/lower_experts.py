"""Lower a mixture of experts: the choice, gate with up, down with the sum of the slots."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgeinfer.kernels.native.instructions import BLOCK, Acts, Buffer, Instruction, Kind
from edgeinfer.kernels.native.lower_rows import gate_scalars
from edgeinfer.kernels.native.lowering import Lowering
from edgeinfer.program.ops import Act, Add, Combine, ExpertLinear, Gated, HeadLinear, Route, Split
from edgeinfer.program.ops_rowwise import FUNCTIONS
from edgeinfer.program.values import Value, WeightRef

LANES = 16  # rows of a matrix that are laid out together


def route(lowering: Lowering, i: int, op: Route) -> None:
    """Lower the choice of experts; their ids stay with the routing, their weights are a value."""
    lowering.emit(
        Instruction(
            Kind.ROUTE,
            op.w.rows,
            inputs=(lowering.buffer(op.logits),),
            outputs=(lowering.buffer(op.w),),
            routing=lowering.new_routing(op),
            vectors=(_name(op.bias), _name(op.scale)),
        )
    )


def expert_linear(lowering: Lowering, i: int, op: ExpertLinear) -> None:
    """Lower a matmul of experts with what it can take along."""
    unit = _gated_unit(lowering, op)
    if unit is not None:
        _gated(lowering, unit)
        return
    acts, gathered = _inputs(lowering, op)
    lowering.observe(op.x, op.weight, lowering.routing(op.ids))
    inputs: tuple[Buffer | None, ...] = ()
    outputs: tuple[Buffer, ...] = (lowering.buffer(op.out),)
    answer = _combined(lowering, op)
    if answer is not None:
        total, add = answer
        inputs = (lowering.buffer(add.a) if add else None, lowering.buffer(total.w))
        outputs = (lowering.buffer(add.out if add else total.out), *outputs)
    lowering.emit(
        Instruction(
            Kind.EXPERTS,
            op.out.rows,
            inputs=inputs,
            outputs=outputs,
            acts_in=acts,
            gathered=gathered,
            routing=lowering.routing(op.ids),
            weights=(op.weight.name,),
            vectors=(_name(op.bias), _name(op.scale)),
        )
    )


def head_linear(lowering: Lowering, i: int, op: HeadLinear) -> None:
    """Lower heads with a matrix each: experts that every row gets, with an input for each."""
    n_heads, _, n_in = op.weight.shape
    routing = lowering.every_head(op.x.rows, n_heads)
    acts = Acts(n_in, op.x.rows, n_heads)
    lowering.add_form(acts, op.weight)
    lowering.observe(op.x, op.weight, routing)
    lowering.emit(
        Instruction(
            Kind.EXPERT_ACTS,
            op.x.rows,
            inputs=(lowering.buffer(op.x),),
            acts_out=acts,
            routing=routing,
        )
    )
    lowering.emit(
        Instruction(
            Kind.EXPERTS,
            op.out.rows,
            outputs=(lowering.buffer(op.out),),
            acts_in=acts,
            routing=routing,
            weights=(op.weight.name,),
            vectors=(None, None),
        )
    )


def combine(lowering: Lowering, i: int, op: Combine) -> None:
    """Lower a sum of slots that no matmul takes with it."""
    inputs = (lowering.buffer(op.y), lowering.buffer(op.w))
    lowering.emit(
        Instruction(
            Kind.COMBINE,
            op.out.rows,
            inputs=inputs,
            outputs=(lowering.buffer(op.out),),
        )
    )


def _name(weight: WeightRef | None) -> str | None:
    return weight.name if weight else None


def _inputs(lowering: Lowering, op: ExpertLinear) -> tuple[Acts, Acts | None]:
    """Return the activations op reads, and room to gather them in if its slots share them."""
    k, n_in = op.ids.width, op.weight.shape[2]
    made = lowering.slot_acts(op.x)
    if made is None and op.x.width == n_in:
        return lowering.acts(op.x), lowering.gathered(op.x, k, [op])
    if made is None:
        made = lowering.new_slot_acts(op.x, k)
        lowering.emit(
            Instruction(
                Kind.EXPERT_ACTS,
                op.x.rows,
                inputs=(lowering.buffer(op.x),),
                acts_out=made,
                routing=lowering.routing(op.ids),
            )
        )
    return made, None


def _combined(lowering: Lowering, op: ExpertLinear) -> tuple[Combine, Add | None] | None:
    """Take the sum of op's slots, and its add to a value that is there already."""
    taker = lowering.uses.sole_taker(op.out, Combine)
    if taker is None or not lowering.is_made(taker[1].w) or taker[1].w.width != op.ids.width:
        return None
    lowering.done.add(taker[0])
    combine = taker[1]
    after = lowering.uses.sole_taker(combine.out, Add)
    if after is None or after[1].b is not combine.out or after[1].alpha != 1.0:
        return combine, None
    if not lowering.is_made(after[1].a):
        return combine, None
    lowering.done.add(after[0])
    return combine, after[1]


# -- gate and up ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """The gated product, or the function, of every slot, and the ops one instruction stands for."""

    x: Value
    out: Value
    scalars: Mapping[str, float | int]  # what is done with them
    experts: tuple[ExpertLinear, ...]  # gate and up, or the one that is both or alone
    is_joint: bool  # one matrix holds the rows of gate and up
    absorbed: frozenset[int]


def _gated_unit(lowering: Lowering, op: ExpertLinear) -> _Unit | None:
    if lowering.observed:
        return None
    found = _pair(lowering, op) or _joint(lowering, op) or _plain(lowering, op)
    if found is None or any(e.scale for e in found.experts):
        return None
    n_ff, k = found.out.width // op.ids.width, op.ids.width
    readers = [lowering.uses.ops[j] for j in lowering.uses.readers(found.out)]
    by_slot = all(
        isinstance(e, ExpertLinear) and e.ids is op.ids and e.weight.shape[2] == n_ff
        for e in readers
    )
    whole = n_ff % BLOCK == 0 and lowering.uses.feeds_only(found.out, ExpertLinear)
    return found if by_slot and whole and found.out.width == k * n_ff else None


def _pair(lowering: Lowering, op: ExpertLinear) -> _Unit | None:
    """Gate and up are two tensors."""
    taker = lowering.uses.sole_taker(op.out, Gated)
    if taker is None:
        return None
    i, gated = taker
    gate, up = (lowering.uses.maker(value, ExpertLinear) for value in (gated.g, gated.u))
    if gate is None or up is None or gate[1].weight.name == up[1].weight.name:
        return None
    one = gate[1].x is up[1].x and gate[1].ids is up[1].ids and gated.g.width == gated.u.width
    if not one:
        return None
    absorbed = frozenset({i, gate[0], up[0]})
    return _Unit(op.x, gated.out, gate_scalars(gated), (gate[1], up[1]), False, absorbed)


def _joint(lowering: Lowering, op: ExpertLinear) -> _Unit | None:
    """Gate and up are the halves of one tensor's rows."""
    taker = lowering.uses.sole_taker(op.out, Split)
    n_ff = op.weight.shape[1] // 2
    if taker is None or taker[1].groups != op.ids.width or taker[1].sizes != (n_ff, n_ff):
        return None
    i, split = taker
    after = [lowering.uses.sole_taker(piece, Gated) for piece in split.outs]
    if after[0] is None or after[1] is None or after[0][0] != after[1][0]:
        return None
    j, gated = after[0]
    if gated.g is not split.outs[0] or n_ff % LANES:
        return None
    return _Unit(op.x, gated.out, gate_scalars(gated), (op,), True, frozenset({i, j}))


def _plain(lowering: Lowering, op: ExpertLinear) -> _Unit | None:
    """One tensor and a function of its results."""
    taker = lowering.uses.sole_taker(op.out, Act)
    if taker is None:
        return None
    i, act = taker
    scalars = {"fn": FUNCTIONS.index(act.fn)}
    return _Unit(op.x, act.out, scalars, (op,), False, frozenset({i}))


def _gated(lowering: Lowering, unit: _Unit) -> None:
    lowering.done |= unit.absorbed
    experts = unit.experts * 2 if unit.is_joint else unit.experts
    acts, gathered = _inputs(lowering, unit.experts[0])
    if gathered is not None:
        gathered = lowering.gathered(unit.x, gathered.slots, unit.experts)
    ids = unit.experts[0].ids
    lowering.emit(
        Instruction(
            Kind.EXPERTS_GATED,
            unit.out.rows,
            acts_in=acts,
            gathered=gathered,
            acts_out=lowering.new_slot_acts(unit.out, ids.width),
            routing=lowering.routing(ids),
            weights=tuple(e.weight.name for e in experts),
            vectors=tuple(_name(e.bias) for e in experts),
            scalars=dict(unit.scalars),
        )
    )
