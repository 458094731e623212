"""Define the 25 ops every architecture is written in, as frozen, range-checked data.

Each op names its values, weights (GGUF names) and constants, and says by its docstring exactly what
it computes. N is the number of rows of a value, `[N, width]`. Three ops act on state: `kv_store`
appends to a KV, `attention` reads one, and `conv1d`, `ssm_scan`, `delta_net` carry their own; all
others are pure and, but for `pool` and `rows`, treat each row alone. Knows no backend.
"""

from typing import TypeAlias

from edgeinfer.program.op import Op
from edgeinfer.program.ops_mixing import (
    Attention,
    Conv1d,
    DeltaNet,
    KvStore,
    Rope,
    SsmScan,
)
from edgeinfer.program.ops_routing import Combine, ExpertLinear, Route
from edgeinfer.program.ops_rowwise import (
    Act,
    Add,
    Concat,
    Embed,
    Fn,
    Gated,
    GatedFn,
    HeadLinear,
    L2Norm,
    LayerNorm,
    Linear,
    Mul,
    Pool,
    RmsNorm,
    Scale,
    SelectRows,
    Softmax,
    Split,
)

OPS: tuple[type[Op], ...] = (
    Embed,
    SelectRows,
    Pool,
    RmsNorm,
    LayerNorm,
    L2Norm,
    Linear,
    HeadLinear,
    ExpertLinear,
    Route,
    Combine,
    Split,
    Concat,
    Rope,
    KvStore,
    Attention,
    Act,
    Gated,
    Add,
    Mul,
    Scale,
    Conv1d,
    SsmScan,
    DeltaNet,
    Softmax,
)

STATE_WRITERS: tuple[type[Op], ...] = (KvStore, Conv1d, SsmScan, DeltaNet)

StateOp: TypeAlias = KvStore | Attention | Conv1d | SsmScan | DeltaNet

__all__ = [
    "OPS",
    "STATE_WRITERS",
    "Act",
    "Add",
    "Attention",
    "Combine",
    "Concat",
    "Conv1d",
    "DeltaNet",
    "Embed",
    "ExpertLinear",
    "Fn",
    "Gated",
    "GatedFn",
    "HeadLinear",
    "KvStore",
    "L2Norm",
    "LayerNorm",
    "Linear",
    "Mul",
    "Op",
    "Pool",
    "RmsNorm",
    "Rope",
    "Route",
    "Scale",
    "SelectRows",
    "Softmax",
    "Split",
    "SsmScan",
    "StateOp",
]
