"""Lower what works on rows alone: lookups, and functions of each element."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import GATES, IDS, POOLINGS, Instruction, Kind
from edgeinfer.kernels.native.lower_attention import UNLIMITED
from edgeinfer.kernels.native.lowering import Lowering
from edgeinfer.program.ops import (
    Act,
    Add,
    Concat,
    Embed,
    Gated,
    Mul,
    Pool,
    Scale,
    SelectRows,
    Softmax,
    Split,
)
from edgeinfer.program.ops_rowwise import FUNCTIONS
from edgeinfer.program.values import Rows, Value, WeightRef

MOST_PIECES = 3  # the outputs of one `ei_op`, and the sizes of inputs


def embed(lowering: Lowering, i: int, op: Embed) -> None:
    """Lower a lookup: of the tokens' rows, of their positions' or segments', of one for all."""
    lowering.emit(
        Instruction(
            Kind.EMBED,
            op.out.rows,
            outputs=(lowering.buffer(op.out),),
            weights=(op.table.name,),
            dims=(op.separator if op.ids == "segments" else op.row,),
            scalars={"fn": IDS.index(op.ids), "scale": op.scale},
        )
    )


def gather(lowering: Lowering, i: int, op: SelectRows) -> None:
    """Lower the choice of the rows whose logits are wanted."""
    inputs, outputs = (lowering.buffer(op.x),), (lowering.buffer(op.out),)
    lowering.emit(Instruction(Kind.GATHER, op.out.rows, inputs=inputs, outputs=outputs))


def pool(lowering: Lowering, i: int, op: Pool) -> None:
    """Lower what makes one row of each sequence's."""
    lowering.emit(
        Instruction(
            Kind.POOL,
            op.out.rows,
            inputs=(lowering.buffer(op.x),),
            outputs=(lowering.buffer(op.out),),
            scalars={"fn": POOLINGS.index(op.kind)},
        )
    )


def split(lowering: Lowering, i: int, op: Split) -> None:
    """Lower the cut of a row, as of fused q, k and v, into copies of its pieces."""
    for first in range(0, len(op.outs), MOST_PIECES):
        some = op.outs[first : first + MOST_PIECES]
        lowering.emit(
            Instruction(
                Kind.SPLIT,
                op.x.rows,
                inputs=(lowering.buffer(op.x),),
                outputs=tuple(lowering.buffer(out) for out in some),
                heads=(op.groups,),
                dims=(sum(op.sizes[:first]),),
            )
        )


def concat(lowering: Lowering, i: int, op: Concat) -> None:
    """Lower the joining of a few values, group by group."""
    if len(op.xs) > MOST_PIECES:
        raise UnsupportedModelError(
            f"native backend: concat of {len(op.xs)} is not implemented (need {MOST_PIECES})"
        )
    lowering.emit(
        Instruction(
            Kind.CONCAT,
            op.out.rows,
            inputs=tuple(lowering.buffer(x) for x in op.xs),
            outputs=(lowering.buffer(op.out),),
            heads=(op.groups,),
            dims=tuple(
                x.width if again else x.width // op.groups
                for x, again in zip(op.xs, op.repeat, strict=True)
            ),
        )
    )


def act(lowering: Lowering, i: int, op: Act) -> None:
    """Lower a function of each element."""
    _elementwise(lowering, Kind.ACT, op.x, op.out, fn=FUNCTIONS.index(op.fn))


def softmax(lowering: Lowering, i: int, op: Softmax) -> None:
    """Lower a softmax."""
    _elementwise(lowering, Kind.SOFTMAX, op.x, op.out)


def gate(lowering: Lowering, i: int, op: Gated) -> None:
    """Lower a gate whose parts no pair of matmuls makes for it."""
    if op.fn == "swiglu_oai" and op.g.width != op.u.width:
        raise UnsupportedModelError(
            f"native backend: gated by {op.fn}, {op.g.width} to {op.u.width} columns, is not "
            "implemented"
        )
    _elementwise(lowering, Kind.GATE, op.g, op.out, op.u, **gate_scalars(op))


def gate_scalars(op: Gated) -> dict[str, float | int]:
    """Return the fields of an instruction that say what its gate does."""
    scalars: dict[str, float | int] = {"fn": GATES.index(op.fn)}
    if op.fn == "swiglu_oai":
        scalars |= {"alpha": op.alpha, "limit": op.limit}
    return scalars


def add(lowering: Lowering, i: int, op: Add) -> None:
    """Lower a sum that no norm or matmul takes with it."""
    _elementwise(lowering, Kind.ADD, op.a, op.out, op.b, alpha=op.alpha)


def multiply(lowering: Lowering, i: int, op: Mul) -> None:
    """Lower a product, element by element, or by a weight of one."""
    if not isinstance(op.b, Value) and op.b.size != op.a.width:
        lowering.emit(
            Instruction(
                Kind.SCALE,
                op.out.rows,
                inputs=(lowering.buffer(op.a),),
                outputs=(lowering.buffer(op.out),),
                vectors=(op.b.name,),
                dims=(UNLIMITED,),
            )
        )
        return
    _elementwise(lowering, Kind.MULTIPLY, op.a, op.out, op.b)


def scale(lowering: Lowering, i: int, op: Scale) -> None:
    """Lower a factor, which may grow with the position, and a soft cap."""
    if op.temp is not None and op.x.rows is not Rows.TOKENS:
        raise UnsupportedModelError(
            "native backend: scale by position of other rows than tokens is not implemented"
        )
    lowering.emit(
        Instruction(
            Kind.SCALE,
            op.out.rows,
            inputs=(lowering.buffer(op.x),),
            outputs=(lowering.buffer(op.out),),
            temperature=op.temp,
            dims=(op.temp[1],) if op.temp else (),
            scalars={"scale": op.by, "softcap": op.cap},
        )
    )


def _elementwise(
    lowering: Lowering,
    kind: Kind,
    x: Value,
    out: Value,
    other: Value | WeightRef | None = None,
    **scalars: float | int,
) -> None:
    second = lowering.buffer(other) if isinstance(other, Value) else None
    weight = other.name if isinstance(other, WeightRef) else None
    lowering.emit(
        Instruction(
            kind,
            out.rows,
            inputs=(lowering.buffer(x), second),
            outputs=(lowering.buffer(out),),
            acts_out=lowering.left_acts(out),
            vectors=(weight,),
            scalars=scalars,
        )
    )
