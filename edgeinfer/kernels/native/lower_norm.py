"""Lower norms of whole rows, with the residual add before them and the activations after them."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import ONES, Buffer, Instruction, Kind
from edgeinfer.kernels.native.lower_attention import rope
from edgeinfer.kernels.native.lowering import Lowering, norm_vector
from edgeinfer.program.ops import Add, L2Norm, LayerNorm, RmsNorm, Rope

Step = tuple[Kind, str | None]
"""An op over rows and the vector it takes."""


def norm(lowering: Lowering, i: int, op: RmsNorm) -> None:
    """Lower a norm; where it ends a branch, the branch's add and the norm after that join it."""
    if op.groups > 1:
        _groups(lowering, op)
        return
    taker = lowering.uses.sole_taker(op.out, Add)
    if taker and _joins(lowering, taker[1], op):
        _branch(lowering, taker[0], taker[1], op)
    else:
        before = Instruction(Kind.NORM, op.x.rows, inputs=(lowering.buffer(op.x),))
        lowering.emit(_normed(lowering, op, before))


def l2_norm(lowering: Lowering, i: int, op: L2Norm) -> None:
    """Lower a norm to length 1: a root mean square of n elements is n^-0.5 of their length."""
    n = op.x.width // op.groups
    between = Buffer(op.x.width, op.x.rows)
    lowering.emit(
        Instruction(
            Kind.HEADS,
            op.x.rows,
            inputs=(lowering.buffer(op.x),),
            outputs=(between,),
            vectors=(ONES,),
            heads=(op.groups,),
            dims=(n,),
            scalars={"eps": op.eps / n},
        )
    )
    outputs = (lowering.buffer(op.out),)
    scalars: dict[str, float | int] = {"scale": n**-0.5}
    lowering.emit(
        Instruction(Kind.SCALE, op.out.rows, inputs=(between,), outputs=outputs, scalars=scalars)
    )


def layer_norm(lowering: Lowering, i: int, op: LayerNorm) -> None:
    """Lower a norm of what is left when the mean is taken away, with weights and bias."""
    for ref in (op.weight, op.bias):
        if ref is not None and ref.size != op.x.width:
            raise UnsupportedModelError(
                "native backend: layer_norm of groups that share a weight is not implemented"
            )
    lowering.emit(
        Instruction(
            Kind.LAYER_NORM,
            op.x.rows,
            inputs=(lowering.buffer(op.x),),
            outputs=(lowering.buffer(op.out),),
            acts_out=lowering.left_acts(op.out),
            vectors=(op.weight.name if op.weight else None, op.bias.name if op.bias else None),
            heads=(op.groups,),
            scalars={"eps": op.eps},
        )
    )


def _groups(lowering: Lowering, op: RmsNorm) -> None:
    """Lower the norm of each group, by a weight that all share, or each by its own.

    A rotation of the same heads joins the former.
    """
    own = op.weight is not None and op.weight.size != op.x.width // op.groups
    turn = lowering.uses.sole_taker(op.out, Rope)
    if turn is not None and turn[1].heads == op.groups and not own:
        lowering.done.add(turn[0])
        rope(lowering, *turn, norm=op)
        return
    steps: list[Step] = [(Kind.HEADS, ONES if own else norm_vector(op))]
    steps += [(Kind.MULTIPLY, norm_vector(op))] if own else []
    _in_steps(lowering, op, steps)


def _in_steps(lowering: Lowering, op: RmsNorm, steps: list[Step]) -> None:
    """Emit a norm as ops that each work on the rows the one before left."""
    x = lowering.buffer(op.x)
    for n, (kind, vector) in enumerate(steps, 1):
        out = lowering.buffer(op.out) if n == len(steps) else Buffer(op.x.width, op.x.rows)
        lowering.emit(
            Instruction(
                kind,
                op.x.rows,
                inputs=(x,),
                outputs=(out,),
                vectors=(vector,),
                heads=(op.groups,),
                dims=(op.x.width // op.groups,),
                scalars={"eps": op.eps},
            )
        )
        x = out


def _joins(lowering: Lowering, add: Add, norm: RmsNorm) -> bool:
    """Whether add is x + norm(branch), x made already and the branch read by nothing else."""
    return (
        add.b is norm.out
        and add.alpha == 1.0
        and lowering.is_made(add.a)
        and lowering.uses.sole_reader(norm.x) is not None
    )


def _branch(lowering: Lowering, i: int, add: Add, norm: RmsNorm) -> None:
    lowering.done.add(i)
    joint = Instruction(
        Kind.NORM,
        add.out.rows,
        inputs=(lowering.buffer(add.a), lowering.buffer(norm.x)),
        outputs=(lowering.buffer(add.out),),
        vectors=(norm_vector(norm),),
        scalars={"eps": norm.eps},
    )
    for j in lowering.uses.readers(add.out):
        after = lowering.uses.ops[j]
        if isinstance(after, RmsNorm) and after.groups == 1 and after.eps == norm.eps:
            lowering.done.add(j)
            joint = _normed(lowering, after, joint)
            break
    lowering.emit(joint)


def _normed(lowering: Lowering, op: RmsNorm, before: Instruction) -> Instruction:
    """Add the norm of the row, and its activations if matmuls read it, to a NORM op."""
    first = before.vectors[0] if before.vectors else None
    sums = before.outputs[0] if before.outputs else None
    before.vectors = (first, norm_vector(op))
    before.outputs = (sums, lowering.buffer(op.out))
    before.scalars["eps"] = op.eps
    before.acts_out = lowering.left_acts(op.out)
    return before
