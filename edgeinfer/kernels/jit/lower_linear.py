"""Make closures of matmuls, dense and of experts: on one quantization, all of one input at once."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels import precision
from edgeinfer.kernels.jit import matmul as mm
from edgeinfer.kernels.jit import rows
from edgeinfer.kernels.jit.formats import FLOATS
from edgeinfer.kernels.jit.memory import address
from edgeinfer.kernels.jit.source import ALONE, Run, Source, packing, refuse
from edgeinfer.kernels.jit.step import Step
from edgeinfer.program import ops
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor

FINE, COARSE = 127.0 * 128.0, 127.0  # the largest codes of activations
Parts = npt.NDArray[np.int64]  # (matrices, mm.PART_NUMBERS)


def largest_codes(
    program: Program, tensors: Mapping[str, Tensor], activations: str
) -> dict[tuple[int, int], float]:
    """Map each value that matmuls read, as rows of some columns, to its largest code.

    All readers share one quantization: fine if any wants that, 0 if none takes integers.
    """
    is_fine = precision.policy(program, activations)
    found: dict[tuple[int, int], float] = {}
    for op in program.ops:
        if isinstance(op, ops.Linear | ops.ExpertLinear):
            key, most = (op.x.id, op.weight.shape[-1]), 0.0
            if packing(tensors[op.weight.name]).law != FLOATS:
                most = FINE if is_fine(op.weight.name) else COARSE
            found[key] = max(most, found.get(key, 0.0))
    return found


def linears(group: Sequence[ops.Linear], source: Source) -> Run:
    """Make the closure of matmuls of one input."""
    x, n = group[0].x, group[0].x.width
    parts = np.stack([_part(op, source) for op in group])
    quantize, multiply = _quantize(x, n, source), _multiply(x, n, source)
    n_groups = sum(-(-op.out.width // mm.LANES) for op in group)

    def run(step: Step) -> None:
        n_rows = step.n_rows[x.rows]
        quantize(step, n_rows)
        parts[:, mm.N_COLUMNS] = n_rows
        multiply(parts, n_groups, n_rows)

    return run


def expert_linears(group: Sequence[ops.ExpertLinear], source: Source) -> Run:
    """Make the closure of matmuls of experts with one input and one choice."""
    x, n = group[0].x, group[0].weight.shape[2]
    choice, templates = source.choices[group[0].ids.id], [_part(op, source) for op in group]
    quantize, multiply = _quantize(x, n, source), _multiply(x, n, source)
    slots = x.width // n
    rows_per_slot = choice.n_used // slots  # a row without slots serves all of them
    groups_each = sum(-(-op.weight.shape[1] // mm.LANES) for op in group)

    def run(step: Step) -> None:
        n_rows = step.n_rows[x.rows]
        quantize(step, n_rows * slots)
        columns = np.stack([choice.pairs // rows_per_slot, choice.pairs], axis=1)
        both = zip(templates, group, strict=True)
        parts = np.concatenate([_for_experts(template, op) for template, op in both])
        parts[:, mm.COLUMNS] = address(columns) + 16 * np.tile(choice.starts, len(group))
        parts[:, mm.N_COLUMNS] = np.tile(choice.counts, len(group))
        multiply(parts, groups_each * len(choice.active), len(choice.pairs))

    def _for_experts(template: Parts, op: ops.ExpertLinear) -> Parts:
        n_experts, n_out, _ = op.weight.shape
        parts = np.repeat(template[None], len(choice.active), axis=0)
        size = source.tensors[op.weight.name].n_bytes // n_experts
        parts[:, mm.WEIGHT] += size * choice.active
        if op.bias is not None:
            parts[:, mm.BIAS] += 4 * n_out * choice.active
        if op.scale is not None:
            parts[:, mm.SCALE] += 4 * choice.active
        return parts

    return run


def _part(op: ops.Linear | ops.ExpertLinear, source: Source) -> Parts:
    """Describe one matrix, or an expert's with the number 0."""
    if isinstance(op, ops.Linear) and op.scale is not None:
        raise refuse(f"{op.weight.name}: a scale tensor")
    tensor, n_out = source.tensors[op.weight.name], op.weight.shape[-2]
    how = packing(tensor)
    source.kept.append(tensor.data)
    part = np.zeros(mm.PART_NUMBERS, np.int64)
    part[[mm.WEIGHT, mm.ROW_BYTES, mm.N_ROWS]] = address(tensor.data), tensor.row_bytes, n_out
    part[[mm.UNPACK, mm.LAW, mm.HAS_MIN]] = how.unpack.address, how.law, how.has_min
    part[[mm.OUT, mm.BIAS, mm.SCALE]] = (
        source.at(op.out),
        source.at_vector(op.bias),
        source.at_vector(op.scale),
    )
    return part


def _quantize(x: Value, n: int, source: Source) -> Callable[[Step, int], None]:
    """Return what quantizes `n_rows` rows of n columns, or nothing if the last closure did it."""
    most = source.most[x.id, n]
    if not most or source.quantized == (x.id, n):
        return lambda step, n_rows: None
    source.quantized = (x.id, n)
    acts, pool, compiled = source.acts, source.pool, rows.quantize.compiled
    args = (source.at(x), n, most, *acts.addresses)

    def run(step: Step, n_rows: int) -> None:
        go = pool.run_alone if n_rows * n < ALONE else pool.run
        go(compiled, n_rows, *args)

    return run


def _multiply(x: Value, n: int, source: Source) -> Callable[[Parts, int, int], None]:
    """Return what runs the matmul kernel over parts of n columns."""
    pool, compiled, scratch = source.pool, mm.matmul.compiled, source.scratch
    tail = (n, source.at(x), *source.acts.addresses, address(scratch), scratch.strides[0])

    def run(parts: Parts, n_groups: int, n_columns: int) -> None:
        few = n_groups * n_columns * n * mm.LANES < 4 * ALONE
        go = pool.run_alone if few else pool.run
        go(compiled, n_groups, address(parts), *tail)

    return run
