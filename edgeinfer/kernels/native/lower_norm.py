"""Lower norms of whole rows, with the residual add before them and the activations after them."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.draft import Draft, norm_vector
from edgeinfer.kernels.native.instructions import ONES, Buffer, Instruction, Kind
from edgeinfer.kernels.native.lower_attention import heads_alone
from edgeinfer.program.ops import Add, L2Norm, LayerNorm, RmsNorm


def norm(draft: Draft, i: int, op: RmsNorm) -> None:
    """Lower a norm; where it ends a branch, the branch's add and the norm after that join it."""
    if op.groups > 1:
        draft.emit(heads_alone(draft, op.x, op.out, op.groups, norm=op))
        return
    taker = draft.uses.sole_taker(op.out, Add)
    if taker and _joins(draft, taker[1], op):
        _branch(draft, taker[0], taker[1], op)
    else:
        before = Instruction(Kind.NORM, op.x.rows, inputs=(draft.buffer(op.x),))
        draft.emit(_normed(draft, op, before))


def l2_norm(draft: Draft, i: int, op: L2Norm) -> None:
    """Lower a norm to length 1: a root mean square of n elements is n^-0.5 of their length."""
    n = op.x.width // op.groups
    between = Buffer(op.x.width, op.x.rows)
    draft.emit(
        Instruction(
            Kind.HEADS,
            op.x.rows,
            inputs=(draft.buffer(op.x),),
            outputs=(between,),
            vectors=(ONES,),
            heads=(op.groups,),
            dims=(n,),
            scalars={"eps": op.eps / n},
        )
    )
    outputs = (draft.buffer(op.out),)
    scalars: dict[str, float | int] = {"scale": n**-0.5}
    draft.emit(
        Instruction(Kind.SCALE, op.out.rows, inputs=(between,), outputs=outputs, scalars=scalars)
    )


def layer_norm(draft: Draft, i: int, op: LayerNorm) -> None:
    """Lower a norm of what is left when the mean is taken away, then weights and bias."""
    for ref in (op.weight, op.bias):
        if ref is not None and ref.size != op.x.width:
            raise UnsupportedModelError(
                "native backend: layer_norm of groups that share a weight is not implemented"
            )
    x, dim = draft.buffer(op.x), op.x.width // op.groups
    steps: list[tuple[Kind, str | None]] = [(Kind.CENTER, None), (Kind.HEADS, ONES)]
    steps += [(Kind.MULTIPLY, op.weight.name)] if op.weight else []
    steps += [(Kind.ADD, op.bias.name)] if op.bias else []
    for kind, vector in steps:
        is_last = kind is steps[-1][0]
        out = draft.buffer(op.out) if is_last else Buffer(op.x.width, op.x.rows)
        draft.emit(
            Instruction(
                kind,
                op.x.rows,
                inputs=(x,),
                outputs=(out,),
                vectors=(vector,),
                heads=(op.groups,),
                dims=(dim,),
                scalars={"eps": op.eps},
            )
        )
        x = out


def _joins(draft: Draft, add: Add, norm: RmsNorm) -> bool:
    """Whether add is x + norm(branch), x made already and the branch read by nothing else."""
    return (
        add.b is norm.out
        and add.alpha == 1.0
        and draft.is_made(add.a)
        and draft.uses.sole_reader(norm.x) is not None
    )


def _branch(draft: Draft, i: int, add: Add, norm: RmsNorm) -> None:
    draft.done.add(i)
    joint = Instruction(
        Kind.NORM,
        add.out.rows,
        inputs=(draft.buffer(add.a), draft.buffer(norm.x)),
        outputs=(draft.buffer(add.out),),
        vectors=(norm_vector(norm),),
        scalars={"eps": norm.eps},
    )
    for j in draft.uses.readers(add.out):
        after = draft.uses.ops[j]
        if isinstance(after, RmsNorm) and after.groups == 1 and after.eps == norm.eps:
            draft.done.add(j)
            joint = _normed(draft, after, joint)
            break
    draft.emit(joint)


def _normed(draft: Draft, op: RmsNorm, before: Instruction) -> Instruction:
    """Add the norm of the row, and its activations if matmuls read it, to a NORM op."""
    first = before.vectors[0] if before.vectors else None
    sums = before.outputs[0] if before.outputs else None
    before.vectors = (first, norm_vector(op))
    before.outputs = (sums, draft.buffer(op.out))
    before.scalars["eps"] = op.eps
    if draft.multipliers(op.out):
        before.acts_out = draft.new_acts(op.out)
    return before
