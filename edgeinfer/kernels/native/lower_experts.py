"""Lower a mixture of experts: the choice, gate with up, down with the sum of the slots."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgeinfer.kernels.native.draft import Draft
from edgeinfer.kernels.native.instructions import BLOCK, Acts, Buffer, Instruction, Kind
from edgeinfer.kernels.native.lower_rows import gate_scalars
from edgeinfer.program.ops import Act, Add, Combine, ExpertLinear, Gated, Route, Split
from edgeinfer.program.ops_rowwise import FUNCTIONS
from edgeinfer.program.values import Value, WeightRef

LANES = 16  # rows of a matrix that are laid out together


def route(draft: Draft, i: int, op: Route) -> None:
    """Lower the choice of experts; their ids stay with the routing, their weights are a value."""
    draft.emit(
        Instruction(
            Kind.ROUTE,
            op.w.rows,
            inputs=(draft.buffer(op.logits),),
            outputs=(draft.buffer(op.w),),
            routing=draft.new_routing(op),
            vectors=(_name(op.bias), _name(op.scale)),
        )
    )


def expert_linear(draft: Draft, i: int, op: ExpertLinear) -> None:
    """Lower a matmul of experts with what it can take along."""
    unit = _gated_unit(draft, op)
    if unit is not None:
        _gated(draft, unit)
        return
    acts, gathered = _inputs(draft, op)
    draft.observe(op.x, op.weight, draft.routing(op.ids))
    inputs: tuple[Buffer | None, ...] = ()
    outputs: tuple[Buffer, ...] = (draft.buffer(op.out),)
    answer = _combined(draft, op)
    if answer is not None:
        total, add = answer
        inputs = (draft.buffer(add.a) if add else None, draft.buffer(total.w))
        outputs = (draft.buffer(add.out if add else total.out), *outputs)
    draft.emit(
        Instruction(
            Kind.EXPERTS,
            op.out.rows,
            inputs=inputs,
            outputs=outputs,
            acts_in=acts,
            gathered=gathered,
            routing=draft.routing(op.ids),
            weights=(op.weight.name,),
            vectors=(_name(op.bias), _name(op.scale)),
        )
    )


def combine(draft: Draft, i: int, op: Combine) -> None:
    """Lower a sum of slots that no matmul takes with it."""
    inputs = (draft.buffer(op.y), draft.buffer(op.w))
    draft.emit(
        Instruction(
            Kind.COMBINE,
            op.out.rows,
            inputs=inputs,
            outputs=(draft.buffer(op.out),),
        )
    )


def _name(weight: WeightRef | None) -> str | None:
    return weight.name if weight else None


def _inputs(draft: Draft, op: ExpertLinear) -> tuple[Acts, Acts | None]:
    """Return the activations op reads, and room to gather them in if its slots share them."""
    k, n_in = op.ids.width, op.weight.shape[2]
    made = draft.slot_acts(op.x)
    if made is None and op.x.width == n_in:
        return draft.acts(op.x), draft.gathered(op.x, k, [op])
    if made is None:
        made = draft.new_slot_acts(op.x, k)
        draft.emit(
            Instruction(
                Kind.EXPERT_ACTS,
                op.x.rows,
                inputs=(draft.buffer(op.x),),
                acts_out=made,
                routing=draft.routing(op.ids),
            )
        )
    return made, None


def _combined(draft: Draft, op: ExpertLinear) -> tuple[Combine, Add | None] | None:
    """Take the sum of op's slots, and its add to a value that is there already."""
    taker = draft.uses.sole_taker(op.out, Combine)
    if taker is None or not draft.is_made(taker[1].w) or taker[1].w.width != op.ids.width:
        return None
    draft.done.add(taker[0])
    combine = taker[1]
    after = draft.uses.sole_taker(combine.out, Add)
    if after is None or after[1].b is not combine.out or after[1].alpha != 1.0:
        return combine, None
    if not draft.is_made(after[1].a):
        return combine, None
    draft.done.add(after[0])
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


def _gated_unit(draft: Draft, op: ExpertLinear) -> _Unit | None:
    if draft.observed:
        return None
    found = _pair(draft, op) or _joint(draft, op) or _plain(draft, op)
    if found is None or any(e.scale for e in found.experts):
        return None
    n_ff, k = found.out.width // op.ids.width, op.ids.width
    readers = [draft.uses.ops[j] for j in draft.uses.readers(found.out)]
    by_slot = all(
        isinstance(e, ExpertLinear) and e.ids is op.ids and e.weight.shape[2] == n_ff
        for e in readers
    )
    whole = n_ff % BLOCK == 0 and draft.uses.feeds_only(found.out, ExpertLinear)
    return found if by_slot and whole and found.out.width == k * n_ff else None


def _pair(draft: Draft, op: ExpertLinear) -> _Unit | None:
    """Gate and up are two tensors."""
    taker = draft.uses.sole_taker(op.out, Gated)
    if taker is None:
        return None
    i, gated = taker
    gate, up = (draft.uses.maker(value, ExpertLinear) for value in (gated.g, gated.u))
    if gate is None or up is None or gate[1].weight.name == up[1].weight.name:
        return None
    one = gate[1].x is up[1].x and gate[1].ids is up[1].ids and gated.g.width == gated.u.width
    if not one:
        return None
    absorbed = frozenset({i, gate[0], up[0]})
    return _Unit(op.x, gated.out, gate_scalars(gated), (gate[1], up[1]), False, absorbed)


def _joint(draft: Draft, op: ExpertLinear) -> _Unit | None:
    """Gate and up are the halves of one tensor's rows."""
    taker = draft.uses.sole_taker(op.out, Split)
    n_ff = op.weight.shape[1] // 2
    if taker is None or taker[1].groups != op.ids.width or taker[1].sizes != (n_ff, n_ff):
        return None
    i, split = taker
    after = [draft.uses.sole_taker(piece, Gated) for piece in split.outs]
    if after[0] is None or after[1] is None or after[0][0] != after[1][0]:
        return None
    j, gated = after[0]
    if gated.g is not split.outs[0] or n_ff % LANES:
        return None
    return _Unit(op.x, gated.out, gate_scalars(gated), (op,), True, frozenset({i, j}))


def _plain(draft: Draft, op: ExpertLinear) -> _Unit | None:
    """One tensor and a function of its results."""
    taker = draft.uses.sole_taker(op.out, Act)
    if taker is None:
        return None
    i, act = taker
    scalars = {"fn": FUNCTIONS.index(act.fn)}
    return _Unit(op.x, act.out, scalars, (op,), False, frozenset({i}))


def _gated(draft: Draft, unit: _Unit) -> None:
    draft.done |= unit.absorbed
    experts = unit.experts * 2 if unit.is_joint else unit.experts
    acts, gathered = _inputs(draft, unit.experts[0])
    if gathered is not None:
        gathered = draft.gathered(unit.x, gathered.slots, unit.experts)
    ids = unit.experts[0].ids
    draft.emit(
        Instruction(
            Kind.EXPERTS_GATED,
            unit.out.rows,
            acts_in=acts,
            gathered=gathered,
            acts_out=draft.new_slot_acts(unit.out, ids.width),
            routing=draft.routing(ids),
            weights=tuple(e.weight.name for e in experts),
            vectors=tuple(_name(e.bias) for e in experts),
            scalars=dict(unit.scalars),
        )
    )
