"""Lower what takes a state from row to row: convolutions, Mamba-2, the gated delta rule."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import Instruction, Kind
from edgeinfer.kernels.native.lowering import Lowering
from edgeinfer.program.ops import Conv1d, DeltaNet, SsmScan
from edgeinfer.program.states import Conv, Delta, Ssm

MOST_TAPS = 64  # EI_MOST_TAPS of csrc/base.h


def convolve(lowering: Lowering, i: int, op: Conv1d) -> None:
    """Lower a convolution over the past, or over both sides, which keeps nothing."""
    if op.weight.shape[1] > MOST_TAPS:
        raise UnsupportedModelError(
            f"native backend: conv1d of {op.weight.shape[1]} taps is not implemented "
            f"(need at most {MOST_TAPS})"
        )
    lowering.emit(
        Instruction(
            Kind.CONV,
            op.out.rows,
            inputs=(lowering.buffer(op.x),),
            outputs=(lowering.buffer(op.out),),
            vectors=(op.weight.name, op.bias.name if op.bias else None),
            state=lowering.program.state_of(Conv, op.conv) if op.mask == "causal" else None,
            dims=(op.weight.shape[1],),
        )
    )


def scan(lowering: Lowering, i: int, op: SsmScan) -> None:
    """Lower the recurrence of Mamba-2."""
    lowering.emit(
        Instruction(
            Kind.SCAN,
            op.out.rows,
            inputs=tuple(lowering.buffer(value) for value in (op.x, op.b, op.c, op.dt)),
            outputs=(lowering.buffer(op.out),),
            vectors=(op.a.name, op.d.name, op.dt_bias.name),
            state=lowering.program.state_of(Ssm, op.ssm),
            heads=(op.heads, op.groups),
        )
    )


def delta(lowering: Lowering, i: int, op: DeltaNet) -> None:
    """Lower the gated delta rule."""
    lowering.emit(
        Instruction(
            Kind.DELTA,
            op.out.rows,
            inputs=tuple(lowering.buffer(value) for value in (op.q, op.k, op.v, op.g, op.beta)),
            outputs=(lowering.buffer(op.out),),
            state=lowering.program.state_of(Delta, op.delta),
            heads=(op.k_heads, op.v_heads),
            scalars={"tiled": int(op.map == "tiled")},
        )
    )
