"""Lower a program to the flat ops of the C executor, fusing what stands together.

NOTE: fusions, by what the C ops offer. A norm joins the residual add before it and the quantization
after it. Matmuls of one input run as one op; a lone one takes the residual add with it. Gate and up
become one op that leaves the next matmul's activations. Per-head norms, rotation and the KV append
of one layer become one op. Experts' gate and up become one op, their down-projection and the sum of
the slots another. Whatever matches no pattern is lowered alone, so every program of the
supported ops runs. None of this changes a bit of the result.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels import precision
from edgeinfer.kernels.native import (
    lower_attention,
    lower_experts,
    lower_linear,
    lower_norm,
    lower_recurrence,
    lower_rows,
)
from edgeinfer.kernels.native.instructions import Lowered
from edgeinfer.kernels.native.lowering import Lowering
from edgeinfer.program.op import Op
from edgeinfer.program.ops import (
    Act,
    Add,
    Attention,
    Combine,
    Concat,
    Conv1d,
    DeltaNet,
    Embed,
    ExpertLinear,
    Gated,
    HeadLinear,
    KvStore,
    L2Norm,
    LayerNorm,
    Linear,
    Mul,
    Pool,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    Softmax,
    Split,
    SsmScan,
)
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

# Each takes the lowering, the op's index and the op. It emits what stands for the op,
# and marks as done the ops which that instruction stands for besides.
LOWER: dict[type[Op], Callable[[Lowering, int, Any], None]] = {
    Embed: lower_rows.embed,
    SelectRows: lower_rows.gather,
    Pool: lower_rows.pool,
    Softmax: lower_rows.softmax,
    LayerNorm: lower_norm.layer_norm,
    RmsNorm: lower_norm.norm,
    L2Norm: lower_norm.l2_norm,
    Linear: lower_linear.linear,
    Rope: lower_attention.rope,
    KvStore: lower_attention.kv_store,
    Attention: lower_attention.attention,
    Act: lower_rows.act,
    Gated: lower_rows.gate,
    Add: lower_rows.add,
    Mul: lower_rows.multiply,
    Scale: lower_rows.scale,
    Split: lower_rows.split,
    Concat: lower_rows.concat,
    HeadLinear: lower_experts.head_linear,
    Route: lower_experts.route,
    ExpertLinear: lower_experts.expert_linear,
    Combine: lower_experts.combine,
    Conv1d: lower_recurrence.convolve,
    SsmScan: lower_recurrence.scan,
    DeltaNet: lower_recurrence.delta,
}


def lower(
    program: Program,
    tensors: Mapping[str, Tensor],
    activations: str = "auto",
    observed: Collection[str] = (),
) -> Lowered:
    """Return the instructions of a program over tensors it was validated against.

    `activations` is that of Limits; `observed` names matrices whose inputs are summed: then no
    input is left in quantized form alone. Raises UnsupportedModelError naming an op,
    or a use of one, the C executor lacks.
    """
    lowering = Lowering(program, tensors, precision.policy(program, activations), observed)
    for i, op in enumerate(program.ops):
        if i in lowering.done:
            continue
        if type(op) not in LOWER:
            raise UnsupportedModelError(
                f"native backend: op '{op.NAME}' is not implemented (need one of "
                f"{', '.join(sorted(kind.NAME for kind in LOWER))})"
            )
        LOWER[type(op)](lowering, i, op)
        lowering.done.add(i)
    result = lowering.buffer(program.result)
    hidden = program.outputs.get("hidden")
    if hidden is None:
        return Lowered(lowering.instructions, result)
    made = lowering.buffer(hidden)
    writers = (made in instruction.outputs for instruction in lowering.instructions)
    return Lowered(lowering.instructions, result, made, 1 + list(writers).index(True))
