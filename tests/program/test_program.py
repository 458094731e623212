"""A program is refused unless its ops fit together."""

from typing import Any

import numpy as np
import pytest

from edgeinfer.errors import ModelFormatError
from edgeinfer.program import ops
from edgeinfer.program.program import Constant, Program
from edgeinfer.program.states import Conv, Delta, Kv, Ssm, State
from edgeinfer.program.values import ConstantRef, Rows, Use, Value, WeightRef

T, R = Rows.TOKENS, Rows.WANTED
TABLE = WeightRef("token_embd.weight", (97, 24), Use.TABLE)
X = Value(0, 24, T)
K, V = Value(1, 8, T), Value(2, 8, T)
HEADS_OUT, Y = Value(3, 24, T), Value(4, 24, R)
LOGITS = Value(5, 97, R)


def linear(x: Value, name: str, out: Value) -> ops.Linear:
    return ops.Linear(x, WeightRef(name, (out.width, x.width), Use.MATRIX), out)


EMBED = ops.Embed(TABLE, X)
PROJECT = (linear(X, "k", K), linear(X, "v", V))
STORE = ops.KvStore(K, V, 0)
ATTEND = ops.Attention(X, HEADS_OUT, 0, 3, 1.0)
SELECT = ops.SelectRows(HEADS_OUT, Y)
HEAD = linear(Y, "output", LOGITS)
SOUND = (EMBED, *PROJECT, STORE, ATTEND, SELECT, HEAD)
KV = Kv(0, 1, 8, 8)


def program(
    op_list: tuple[ops.Op, ...] = SOUND,
    states: tuple[State, ...] = (KV,),
    outputs: dict[str, Value] | None = None,
) -> Program:
    return Program(
        arch="test",
        ops=op_list,
        constants=(Constant("c", np.ones(4, np.float32)),),
        states=states,
        outputs={"logits": LOGITS} if outputs is None else outputs,
        n_vocab=97,
        n_embd=24,
        n_layers=1,
        n_ctx=16,
        n_ctx_train=32,
    )


def test_a_sound_program_lists_its_weights_once() -> None:
    tied = ops.Linear(Y, WeightRef(TABLE.name, TABLE.shape, Use.MATRIX), LOGITS)
    made = program((*SOUND[:-1], tied))
    assert list(made.weights()) == ["token_embd.weight", "k", "v"]
    assert made.kv(0) == KV
    assert list(made.attentions()) == [ATTEND]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("no earlier op wrote", {"op_list": SOUND[1:]}),
    ("written twice", {"op_list": (EMBED, *SOUND)}),
    ("no output", {"outputs": {}}),
    ("no op writes value 9", {"outputs": {"logits": Value(9, 97, R)}}),
    ("no op writes value 5", {"outputs": {"logits": Value(5, 96, R)}}),
    ("not declared", {"states": ()}),
    ("declared twice", {"states": (KV, KV)}),
    ("before a kv_store wrote it", {"op_list": (EMBED, *PROJECT, ATTEND, STORE, SELECT, HEAD)}),
    ("kv 0 is written twice", {"op_list": (EMBED, *PROJECT, STORE, STORE, ATTEND, SELECT, HEAD)}),
    ("width of k", {"states": (Kv(0, 1, 4, 8),)}),
    ("width of v", {"states": (Kv(0, 1, 8, 4),)}),
    ("v: found", {"states": (Kv(0, 1, 8, 8, v_is_prefix=True),)}),
    ("heads: found 3", {"states": (Kv(0, 2, 4, 4),)}),
    ("window: found 0", {"states": (Kv(0, 1, 8, 8, window=4),)}),
    (
        "before the last op that writes state",
        {"op_list": (EMBED, *PROJECT, ops.SelectRows(X, Y), STORE, ATTEND, HEAD)},
    ),
    (
        "constant 1",
        {"op_list": (*SOUND, ops.Rope(X, ConstantRef(1, 4), Value(9, 24, T), 3, "half"))},
    ),
    (
        "constant 0 of 3",
        {"op_list": (*SOUND, ops.Rope(X, ConstantRef(0, 3), Value(9, 24, T), 3, "half"))},
    ),
]


@pytest.mark.parametrize(("said", "change"), BAD)
def test_ops_that_do_not_fit_are_refused(said: str, change: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError, match=said):
        program(**change)


def test_a_recurrent_state_has_the_size_its_op_needs() -> None:
    taps = WeightRef("conv", (24, 4), Use.VECTOR)
    conv = ops.Conv1d(X, taps, None, Value(9, 24, T), 0)
    op_list = (EMBED, conv, *SOUND[1:])
    made = program(op_list, (KV, Conv(0, 24, 3)))
    assert made.state_of(Conv, 0) == Conv(0, 24, 3)
    with pytest.raises(ModelFormatError, match="n_past=3"):
        program(op_list, (KV, Conv(0, 24, 4)))


def test_a_snapshot_holds_all_recurrent_states_in_float32() -> None:
    taps = WeightRef("conv", (24, 4), Use.VECTOR)
    conv = ops.Conv1d(X, taps, None, Value(9, 24, T), 0)
    made = program((EMBED, conv, *SOUND[1:]), (KV, Conv(0, 24, 3)))
    assert made.recurrent == (Conv(0, 24, 3),)
    assert made.snapshot_bytes == 24 * 3 * 4
    assert Ssm(0, n_heads=2, head_dim=3, state_dim=5).n_floats == 30
    assert Delta(0, n_heads=2, key_dim=3, value_dim=5).n_floats == 30


@pytest.mark.parametrize(
    "change",
    [{"n_kv_heads": 0}, {"key_dim": -1}, {"window": -1}, {"v_is_prefix": True, "value_dim": 9}],
)
def test_a_kv_declares_positive_sizes(change: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"id": 0, "n_kv_heads": 1, "key_dim": 8, "value_dim": 8}
    with pytest.raises(ModelFormatError, match="kv 0"):
        Kv(**(sizes | change))
