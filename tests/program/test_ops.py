"""Ops are data that checks itself."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from edgeinfer.errors import ModelFormatError
from edgeinfer.program import ops
from edgeinfer.program.values import ConstantRef, Rows, Use, Value, WeightRef

T, R = Rows.TOKENS, Rows.WANTED
NAMES = (
    "embed rows pool rms_norm layer_norm l2_norm linear head_linear expert_linear route combine "
    "split concat rope kv_store attention act gated add mul scale conv1d ssm_scan delta_net softmax"
).split()


def value(id: int, width: int, rows: Rows = T, **more: Any) -> Value:
    return Value(id, width, rows, **more)


def weight(*shape: int) -> WeightRef:
    return WeightRef("w.weight", shape, Use.VECTOR)


IDS = value(8, 2, is_ids=True)
X, Y = value(0, 24), value(1, 24)

# One sound example of every op; each bad change below starts from it.
SOUND: dict[str, ops.Op] = {
    "embed": ops.Embed(weight(97, 24), X),
    "rows": ops.SelectRows(X, value(1, 24, R)),
    "pool": ops.Pool(X, value(1, 24, Rows.SEQUENCES), "mean"),
    "rms_norm": ops.RmsNorm(X, weight(12), Y, 1e-5, 2),
    "layer_norm": ops.LayerNorm(X, weight(24), None, Y, 1e-5),
    "l2_norm": ops.L2Norm(X, Y, 1e-6, 3),
    "linear": ops.Linear(X, weight(7, 24), value(1, 7)),
    "head_linear": ops.HeadLinear(X, weight(3, 5, 8), value(1, 15)),
    "expert_linear": ops.ExpertLinear(X, IDS, weight(4, 5, 24), value(1, 10)),
    "route": ops.Route(value(0, 6), IDS, value(1, 2)),
    "combine": ops.Combine(X, value(2, 2), value(1, 12)),
    "split": ops.Split(X, (value(1, 6), value(2, 18)), (2, 6), 3),
    "concat": ops.Concat((X, value(2, 5)), value(1, 39), (False, True), 3),
    "rope": ops.Rope(X, ConstantRef(0, 4), Y, 2, "half"),
    "kv_store": ops.KvStore(X, Y, 0),
    "attention": ops.Attention(X, Y, 0, 3, 0.5),
    "act": ops.Act(X, Y, "silu"),
    "gated": ops.Gated(value(2, 6), X, Y, "silu"),
    "add": ops.Add(X, value(2, 24), Y),
    "mul": ops.Mul(X, weight(1), Y),
    "scale": ops.Scale(X, Y, by=2.0),
    "conv1d": ops.Conv1d(X, weight(24, 4), None, Y, 0),
    "ssm_scan": ops.SsmScan(
        X,
        value(2, 10),
        value(3, 10),
        value(4, 4),
        weight(4, 1),
        weight(4),
        weight(4),
        Y,
        0,
        4,
        2,
        5,
    ),
    "delta_net": ops.DeltaNet(
        X, value(2, 24), value(3, 20), value(4, 4), value(5, 4), value(1, 20), 0, 2, 4
    ),
    "softmax": ops.Softmax(X, Y),
}

BAD: list[tuple[str, dict[str, Any]]] = [
    ("embed", {"scale": 0.0}),
    ("embed", {"scale": float("nan")}),
    ("embed", {"ids": "row", "row": 97}),
    ("embed", {"ids": "column"}),
    ("embed", {"ids": "segments", "separator": -1}),
    ("embed", {"ids": "segments", "table": weight(1, 24)}),
    ("embed", {"out": value(0, 24, R)}),
    ("rows", {"x": value(0, 24, R)}),
    ("rows", {"out": Y}),
    ("pool", {"kind": "max"}),
    ("rms_norm", {"eps": 0.0}),
    ("rms_norm", {"eps": float("inf")}),
    ("rms_norm", {"groups": 0}),
    ("rms_norm", {"groups": 5}),
    ("rms_norm", {"weight": weight(8)}),
    ("layer_norm", {"bias": weight(23)}),
    ("l2_norm", {"eps": -1.0}),
    ("linear", {"weight": weight(24, 7)}),
    ("linear", {"bias": weight(24)}),
    ("linear", {"scale": weight(7)}),
    ("linear", {"out": value(1, 7, R)}),
    ("head_linear", {"weight": weight(3, 8, 5)}),
    ("head_linear", {"weight": weight(24, 15)}),
    ("expert_linear", {"ids": value(8, 2)}),
    ("expert_linear", {"x": value(0, 72)}),
    ("route", {"ids": value(8, 7, is_ids=True), "w": value(1, 7)}),
    ("route", {"ids": value(8, 2)}),
    ("route", {"groups": 4}),
    ("route", {"groups": 3, "groups_used": 4}),
    ("route", {"groups": 6, "groups_used": 3}),
    ("route", {"score": "argmax"}),
    ("combine", {"out": value(1, 11)}),
    ("split", {"sizes": (3, 6)}),
    ("split", {"sizes": (8, 0)}),
    ("split", {"groups": 2}),
    ("concat", {"repeat": (False, False)}),
    ("concat", {"xs": (), "repeat": ()}),
    ("rope", {"heads": 5}),
    ("rope", {"heads": 0}),
    ("rope", {"inv_freq": ConstantRef(0, 7)}),
    ("rope", {"axis": ConstantRef(1, 3)}),
    ("rope", {"pairing": "other"}),
    ("rope", {"mscale": float("nan")}),
    ("rope", {"x": value(0, 24, Rows.SEQUENCES), "out": value(1, 24, Rows.SEQUENCES)}),
    ("kv_store", {"k": value(0, 24, R)}),
    ("attention", {"scale": 0.0}),
    ("attention", {"softcap": -1.0}),
    ("attention", {"window": -1}),
    ("attention", {"heads": 7}),
    ("attention", {"sinks": weight(4)}),
    ("attention", {"slopes": ConstantRef(0, 2)}),
    ("attention", {"mask": "none"}),
    ("act", {"fn": "swish"}),
    ("gated", {"g": value(2, 7)}),
    ("gated", {"limit": 0.0}),
    ("add", {"b": weight(23)}),
    ("add", {"b": value(2, 24, R)}),
    ("add", {"alpha": float("inf")}),
    ("mul", {"b": weight(2)}),
    ("scale", {"cap": -1.0}),
    ("scale", {"temp": (0.1, 0)}),
    ("conv1d", {"weight": weight(24, 1)}),
    ("conv1d", {"mask": "centered"}),
    ("ssm_scan", {"groups": 3}),
    ("ssm_scan", {"dt": value(4, 5)}),
    ("ssm_scan", {"a": weight(5)}),
    ("delta_net", {"v_heads": 5}),
    ("delta_net", {"k": value(2, 20)}),
    ("softmax", {"out": value(1, 23)}),
]


def test_there_are_exactly_the_25_ops() -> None:
    assert [op.NAME for op in ops.OPS] == NAMES
    assert sorted(SOUND) == sorted(NAMES)
    assert all(SOUND[op.NAME].__class__ is op for op in ops.OPS)


@pytest.mark.parametrize(("name", "change"), BAD)
def test_an_op_out_of_range_is_a_typed_error(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError, match=f"program: op {name}.*need"):
        replace(SOUND[name], **change)


@pytest.mark.parametrize("name", NAMES)
def test_the_walk_finds_every_value_and_weight(name: str) -> None:
    op = SOUND[name]
    seen = [*op.reads(), *op.writes(), *op.weights(), *op.constants()]
    held: list[Any] = []
    for field in fields(op):
        item = getattr(op, field.name)
        held += item if isinstance(item, tuple) else [item]
    kinds = (Value, WeightRef, ConstantRef)
    assert sorted(map(repr, seen)) == sorted(repr(i) for i in held if isinstance(i, kinds))
    assert not {v.id for v in op.writes()} & {v.id for v in op.reads()}


@pytest.mark.parametrize("name", NAMES)
def test_ops_are_frozen(name: str) -> None:
    op = SOUND[name]
    with pytest.raises(FrozenInstanceError):
        setattr(op, fields(op)[0].name, None)


@pytest.mark.parametrize("width", [0, -1, 1 << 31])
def test_a_value_needs_a_width(width: int) -> None:
    with pytest.raises(ModelFormatError, match="width"):
        value(0, width)
