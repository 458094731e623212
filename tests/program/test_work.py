"""What a step must read and multiply is counted from the ops, each matrix once."""

import numpy as np

from edgeinfer.program import ops
from edgeinfer.program.program import Program
from edgeinfer.program.states import Kv
from edgeinfer.program.values import Rows, Use, Value, WeightRef
from edgeinfer.program.work import kv_bytes, macs_per_token, weight_bytes
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

T, R = Rows.TOKENS, Rows.WANTED
X, K, V, Y = (Value(i, 64, T) for i in range(4))
IDS, W = Value(4, 2, T, is_ids=True), Value(5, 2, T)
ROUTER, EXPERTS = Value(6, 8, T), Value(7, 2 * 32, T)
LAST, LOGITS = Value(8, 64, R), Value(9, 96, R)


def ref(name: str, *shape: int, use: Use = Use.MATRIX) -> WeightRef:
    return WeightRef(name, shape, use)


OPS = (
    ops.Embed(ref("token_embd", 96, 64, use=Use.TABLE), X),
    ops.Linear(X, ref("k", 64, 64), K),
    ops.Linear(X, ref("v", 64, 64), V),
    ops.KvStore(K, V, 0),
    ops.KvStore(K, V, 1),
    ops.Attention(X, Y, 0, 2, 1.0),
    ops.Attention(X, Value(10, 64, T), 1, 2, 1.0, window=16),
    ops.Linear(Y, ref("router", 8, 64), ROUTER),
    ops.Route(ROUTER, IDS, W),
    ops.ExpertLinear(Y, IDS, ref("up", 8, 32, 64), EXPERTS),
    ops.SelectRows(Y, LAST),
    ops.Linear(LAST, ref("token_embd", 96, 64), LOGITS),
)
PROGRAM = Program(
    arch="test",
    ops=OPS,
    constants=(),
    states=(Kv(0, 2, 32, 32), Kv(1, 2, 32, 32, window=16)),
    outputs={"logits": LOGITS},
    n_vocab=96,
    n_embd=64,
    n_layers=1,
    n_ctx=64,
    n_ctx_train=64,
)


def stored(name: str, *shape: int) -> Tensor:
    f16 = FORMATS["F16"]
    n_bytes = int(np.prod(shape[:-1])) * f16.row_bytes(shape[-1])
    return Tensor(name, shape, f16, np.zeros(n_bytes, np.uint8))


TENSORS = {
    tensor.name: tensor
    for tensor in (
        stored("token_embd", 96, 64),
        stored("k", 64, 64),
        stored("v", 64, 64),
        stored("router", 8, 64),
        stored("up", 8, 32, 64),
    )
}


def test_weights_are_read_once_and_of_experts_only_the_chosen() -> None:
    plain = 2 * 64 * 64 + 8 * 64 + 96 * 64
    assert weight_bytes(PROGRAM, TENSORS) == 2 * (plain + 2 * 32 * 64)
    met_by_two = 8 * (1 - (1 - 2 / 8) ** 2)
    assert weight_bytes(PROGRAM, TENSORS, n_tokens=2) == 2 * (plain + met_by_two * 32 * 64)


def test_every_token_is_multiplied_by_what_stands_before_the_last_row_is_taken() -> None:
    assert macs_per_token(PROGRAM) == 2 * 64 * 64 + 8 * 64 + 2 * 32 * 64


def test_keys_and_values_are_read_up_to_the_window() -> None:
    row = 2 * (32 + 32) * 2
    assert kv_bytes(PROGRAM, 0) == 0
    assert kv_bytes(PROGRAM, 10) == 20 * row
    assert kv_bytes(PROGRAM, 40) == (40 + 16) * row
