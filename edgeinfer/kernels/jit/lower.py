"""Turn a program into closures over compiled kernels, each to be called with a step.

Ops run one by one, but for matmuls of the same input, which run together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.jit import attention, lower_experts, lower_heads, lower_rows, matmul, rows
from edgeinfer.kernels.jit.compiler import Kernel
from edgeinfer.kernels.jit.lower_linear import expert_linears, linears
from edgeinfer.kernels.jit.source import Run, Source, packing
from edgeinfer.program import ops
from edgeinfer.program.op import Op
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor

LOWER: dict[type[Op], Callable[[Any, Source], Run]] = {
    ops.Embed: lower_rows.embed,
    ops.SelectRows: lower_rows.select,
    ops.Pool: lower_rows.pool,
    ops.RmsNorm: lower_rows.norm,
    ops.LayerNorm: lower_rows.layer_norm,
    ops.L2Norm: lower_rows.l2_norm,
    ops.Rope: lower_heads.rope,
    ops.KvStore: lower_heads.kv_store,
    ops.Attention: lower_heads.attention,
    ops.Act: lower_rows.act,
    ops.Gated: lower_rows.gated,
    ops.Add: lower_rows.add,
    ops.Mul: lower_rows.multiply,
    ops.Scale: lower_rows.scale,
    ops.Split: lower_rows.split,
    ops.Softmax: lower_rows.softmax,
    ops.Route: lower_experts.route,
    ops.Combine: lower_experts.combine,
}

# These take all ops that run together.
LOWER_TOGETHER: dict[type[Op], Callable[[Sequence[Any], Source], Run]] = {
    ops.Linear: linears,
    ops.ExpertLinear: expert_linears,
}

# The kernels an op needs, besides those that unpack its weights; none where NumPy does it.
KERNELS: dict[type[Op], tuple[Kernel, ...]] = {
    ops.Linear: (rows.quantize, matmul.matmul),
    ops.ExpertLinear: (rows.quantize, matmul.matmul),
    ops.RmsNorm: (rows.rms_norm,),
    ops.LayerNorm: (rows.layer_norm,),
    ops.L2Norm: (rows.rms_norm, rows.scale),
    ops.Rope: (rows.rope,),
    ops.KvStore: (attention.kv_store,),
    ops.Attention: (attention.attention,),
    ops.Act: (rows.activate,),
    ops.Gated: (rows.activate,),
    ops.Scale: (rows.scale,),
    ops.Softmax: (rows.softmax,),
    ops.Route: (rows.softmax, rows.activate),
    ops.Combine: (rows.combine,),
}


def plan(program: Program) -> list[tuple[Op, ...]]:
    """Return what runs together, in order: single ops, and all matmuls of one input."""
    first: dict[tuple[int, ...], list[Op]] = {}
    planned: list[list[Op]] = []
    for op in program.ops:
        key: tuple[int, ...] = ()
        if isinstance(op, ops.Linear):
            key = (op.x.id,)
        elif isinstance(op, ops.ExpertLinear):
            key = (op.x.id, op.ids.id, op.weight.shape[2])
        if key in first:
            first[key].append(op)
            continue
        planned.append([op])
        if key:
            first[key] = planned[-1]
    return [tuple(together) for together in planned]


def kernels_of(program: Program, tensors: Mapping[str, Tensor]) -> list[Kernel]:
    """List the kernels a program needs.

    Raises UnsupportedModelError naming an op or a format that has none.
    """
    found: list[Kernel] = []
    known = {**LOWER, **LOWER_TOGETHER}
    for op in program.ops:
        if type(op) not in known:
            raise UnsupportedModelError(
                f"jit backend: op '{op.NAME}' is not implemented (need one of "
                f"{', '.join(sorted(kind.NAME for kind in known))})"
            )
        is_clamped = isinstance(op, ops.Gated) and op.fn == "swiglu_oai"
        found += (rows.clamped_gate,) if is_clamped else KERNELS.get(type(op), ())
        if isinstance(op, ops.Linear | ops.ExpertLinear):
            found.append(packing(tensors[op.weight.name]).unpack)
    return list(dict.fromkeys(found))


def lower(together: tuple[Op, ...], source: Source) -> Run:
    """Return the closure of ops that run together."""
    kind = type(together[0])
    if kind in LOWER_TOGETHER:
        return LOWER_TOGETHER[kind](together, source)
    return LOWER[kind](together[0], source)


def reads_and_writes(together: Iterable[Op]) -> tuple[list[Value], list[Value]]:
    """Return the values that ops which run together read and write."""
    read = [value for op in together for value in op.reads()]
    return read, [value for op in together for value in op.writes()]
