"""Count what a step of a program must do at least: bytes to read, numbers to multiply.

A program and the stored size of its weights go in; the counts say how near a measured speed is to
the speed of the memory or of the multipliers. Knows no backend and no machine.
"""

from collections.abc import Mapping

from edgeinfer.program.ops_mixing import Attention
from edgeinfer.program.ops_routing import ExpertLinear
from edgeinfer.program.ops_rowwise import HeadLinear, Linear
from edgeinfer.program.program import Program
from edgeinfer.program.values import Rows, WeightRef
from edgeinfer.quant.tensor import Tensor

KV_BYTES = 2  # of one stored key or value element


def weight_bytes(program: Program, tensors: Mapping[str, Tensor], *, n_tokens: int = 1) -> int:
    """Count the bytes of matrices that a step of `n_tokens` reads; each matrix counts once.

    Of experts, as many count as the tokens meet on average if they choose evenly.
    """
    n_bytes = {}
    for op in program.ops:
        if isinstance(op, Linear | HeadLinear):
            n_bytes[op.weight.name] = tensors[op.weight.name].n_bytes
        elif isinstance(op, ExpertLinear):
            missed = (1 - op.ids.width / op.weight.shape[0]) ** n_tokens
            n_bytes[op.weight.name] = round(tensors[op.weight.name].n_bytes * (1 - missed))
    return sum(n_bytes.values())


def macs_per_token(program: Program) -> int:
    """Count the multiply-adds that every token of a prompt needs in matrices.

    Attention is left out, and so are the matrices that only the last token of a prompt meets.
    """
    return sum(n for op in program.ops if (n := _macs(op)) and _is_for_tokens(op))


def kv_bytes(program: Program, n_positions: int) -> int:
    """Count the bytes of keys and values that one token after `n_positions` others reads."""
    kvs = {kv.id: kv for kv in program.kvs}
    n_elements = 0
    for op in program.ops:
        if isinstance(op, Attention):
            kv = kvs[op.kv]
            seen = min(n_positions, op.window) if op.window else n_positions
            dims = kv.key_dim + (0 if kv.v_is_prefix else kv.value_dim)
            n_elements += seen * kv.n_kv_heads * dims
    return n_elements * KV_BYTES


def _macs(op: object) -> int:
    if isinstance(op, Linear | HeadLinear):
        return op.weight.size
    if isinstance(op, ExpertLinear):
        return _of_one_expert(op.weight) * op.ids.width
    return 0


def _of_one_expert(weight: WeightRef) -> int:
    return weight.size // weight.shape[0]


def _is_for_tokens(op: object) -> bool:
    return isinstance(op, Linear | HeadLinear | ExpertLinear) and op.x.rows is Rows.TOKENS
