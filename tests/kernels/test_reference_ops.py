"""Each op of the reference backend computes its docstring; formulas here are written out again."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeinfer.kernels.reference import functions as f
from edgeinfer.kernels.reference.attention import Terms, attend
from edgeinfer.kernels.reference.backend import BACKEND
from edgeinfer.kernels.reference.recurrence import convolve_centered
from edgeinfer.kernels.reference.routing import route
from edgeinfer.kernels.reference.step import KvPages, Run
from edgeinfer.program import ops
from edgeinfer.program.program import Constant, Program
from edgeinfer.program.states import State
from edgeinfer.program.values import ConstantRef, Rows, Use, Value, WeightRef
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels.kl import limits_for, one_sequence

RNG = np.random.default_rng(11)
WIDTH, N_ROWS = 12, 9
TABLE = RNG.standard_normal((N_ROWS, WIDTH)).astype(np.float32)
IDS = [3, 8, 0, 5]
X = TABLE[IDS].astype(np.float64)
X0 = Value(0, WIDTH, Rows.TOKENS)


def tensor(name: str, array: Any) -> Tensor:
    data = np.asarray(array, np.float32)
    return Tensor(name, data.shape, FORMATS["F32"], data.reshape(-1).view(np.uint8))


def out(width: int = WIDTH) -> Value:
    return Value(1, width, Rows.TOKENS)


def run(
    make: Callable[[Callable[..., WeightRef]], ops.Op],
    *,
    constants: tuple[Constant, ...] = (),
    states: tuple[State, ...] = (),
) -> Any:
    """Embed IDS, run one op on them, return its result."""
    tensors = {"t": tensor("t", TABLE)}

    def weight(array: Any) -> WeightRef:
        name = f"w{len(tensors)}"
        tensors[name] = tensor(name, array)
        return WeightRef(name, tensors[name].shape, Use.VECTOR)

    op = make(weight)
    result = op.writes()[0]
    op_list = (ops.Embed(WeightRef("t", TABLE.shape, Use.TABLE), X0), op)
    program = Program(
        arch="test",
        ops=op_list,
        constants=constants,
        states=states,
        outputs={"logits": result},
        n_vocab=N_ROWS,
        n_embd=WIDTH,
        n_layers=1,
        n_ctx=64,
        n_ctx_train=64,
    )
    executable = BACKEND.compile(program, tensors, limits_for(64))
    return executable.run(one_sequence(IDS, 5, []))


def close(found: Any, expected: Any) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=3e-6)


def test_layer_norm_in_groups() -> None:
    w, b = RNG.standard_normal(WIDTH), RNG.standard_normal(WIDTH)
    found = run(lambda weight: ops.LayerNorm(X0, weight(w), weight(b), out(), 1e-3, 3))
    y = X.reshape(4, 3, 4)
    y = (y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + 1e-3)
    close(found, y.reshape(4, WIDTH) * w + b)


def test_rms_norm_shares_a_group_weight_or_takes_the_whole() -> None:
    y = X.reshape(4, 3, 4)
    y = (y / np.sqrt((y * y).mean(2, keepdims=True) + 1e-3)).reshape(4, WIDTH)
    short, whole = RNG.standard_normal(4), RNG.standard_normal((3, 4))
    close(run(lambda w: ops.RmsNorm(X0, w(short), out(), 1e-3, 3)), y * np.tile(short, 3))
    close(run(lambda w: ops.RmsNorm(X0, w(whole), out(), 1e-3, 3)), y * whole.ravel())
    close(run(lambda w: ops.RmsNorm(X0, None, out(), 1e-3, 3)), y)


def test_l2_norm() -> None:
    y = X.reshape(4, 2, 6)
    expected = y / np.sqrt((y * y).sum(2, keepdims=True) + 1e-6)
    close(run(lambda w: ops.L2Norm(X0, out(), 1e-6, 2)), expected.reshape(4, WIDTH))


def test_linear_scales_before_the_bias() -> None:
    w, b = RNG.standard_normal((7, WIDTH)), RNG.standard_normal(7)
    found = run(lambda weight: ops.Linear(X0, weight(w), out(7), weight(b), weight([2.5])))
    close(found, 2.5 * (X @ w.T) + b)


def test_head_linear() -> None:
    w = RNG.standard_normal((3, 5, 4))
    expected = np.einsum("thi,hoi->tho", X.reshape(4, 3, 4), w).reshape(4, 15)
    close(run(lambda weight: ops.HeadLinear(X0, weight(w), out(15))), expected)


def test_add_and_mul_with_weights() -> None:
    w = RNG.standard_normal(WIDTH)
    close(run(lambda weight: ops.Add(X0, weight(w), out(), 0.5)), X + 0.5 * w)
    close(run(lambda weight: ops.Mul(X0, weight(w.reshape(-1, 1)), out())), X * w)
    close(run(lambda weight: ops.Mul(X0, weight([3.0]), out())), X * 3)


def test_scale_multiplies_by_temperature_then_caps() -> None:
    grown = 1 + 0.3 * np.log(1 + np.floor(np.arange(5, 9) / 3))[:, None]
    expected = 2 * np.tanh(1.5 * X * grown / 2)
    close(run(lambda w: ops.Scale(X0, out(), 1.5, 2.0, (0.3, 3))), expected)


def test_softmax() -> None:
    expected = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    close(run(lambda w: ops.Softmax(X0, out())), expected)


def test_concat_repeats_a_shared_value() -> None:
    two = (X0, X0)
    found = run(lambda w: ops.Concat(two, out(48), (False, True), 3))
    y = X.reshape(4, 3, 4)
    shared = np.broadcast_to(X[:, None], (4, 3, WIDTH))
    close(found, np.concatenate([y, shared], 2).reshape(4, 48))


def test_split_joins_the_pieces_of_all_groups() -> None:
    pieces = (out(3), Value(2, 9, Rows.TOKENS))
    found = run(lambda w: ops.Split(X0, pieces, (1, 3), 3))
    close(found, X.reshape(4, 3, 4)[:, :, 0])


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_turns_part_of_each_head(pairing: Any) -> None:
    inv = np.array([1.0, 0.25])
    table = Constant("inv", inv.astype(np.float32))
    found = run(
        lambda w: ops.Rope(X0, ConstantRef(0, 2), out(), 2, pairing, 1.5), constants=(table,)
    )
    expected = X.reshape(4, 2, 6).copy()
    for t in range(4):
        for i in range(2):
            a, b = (i, i + 2) if pairing == "half" else (2 * i, 2 * i + 1)
            z = X.reshape(4, 2, 6)[t, :, a] + 1j * X.reshape(4, 2, 6)[t, :, b]
            z = z * 1.5 * np.exp(1j * (5 + t) * inv[i])
            expected[t, :, a], expected[t, :, b] = z.real, z.imag
    close(found, expected.reshape(4, WIDTH))


@pytest.mark.parametrize("fn", sorted(f.ACTIVATIONS))
def test_activations(fn: Any) -> None:
    plain: dict[str, Callable[[float], float]] = {
        "silu": lambda x: x / (1 + math.exp(-x)),
        "gelu_tanh": lambda x: (
            0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        ),
        "gelu_erf": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
        "relu": lambda x: max(x, 0.0),
        "relu2": lambda x: max(x, 0.0) ** 2,
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
        "tanh": math.tanh,
        "softplus": lambda x: math.log1p(math.exp(x)),
    }
    close(run(lambda w: ops.Act(X0, out(), fn)), np.vectorize(plain[fn])(X))
    limits = {"silu": 0, "gelu_tanh": 0, "gelu_erf": 0, "relu": 0, "relu2": 0, "softplus": 0}
    far = f.ACTIVATIONS[fn](np.array([-3e38, -1e4, 1e4], np.float32))
    assert np.isfinite(far).all()
    assert far[0] == limits.get(fn, {"sigmoid": 0, "tanh": -1}.get(fn))


def test_gated_by_a_narrow_gate() -> None:
    gate = ops.Gated(X0, X0, out(), "sigmoid")
    close(run(lambda w: gate), X / (1 + np.exp(-X)))
    g, u = X[:, :3], np.repeat(X[:, :3], 4, axis=1)
    narrow = np.repeat(g.astype(np.float32), 4, axis=1)
    np.testing.assert_allclose(f.silu(narrow) * u, u / (1 + np.exp(-u)) * u, atol=1e-6)


def test_swiglu_oai_clamps_both_sides() -> None:
    g = np.array([-9.0, 0.5, 9.0], np.float32)
    u = np.array([-9.0, 0.5, 9.0], np.float32)
    gc, uc = np.minimum(g, 7.0), np.clip(u, -7.0, 7.0)
    expected = gc / (1 + np.exp(-1.702 * gc)) * (uc + 1)
    np.testing.assert_allclose(f.swiglu_oai(g, u, 1.702, 7.0), expected, rtol=1e-6)


def route_op(**more: Any) -> ops.Route:
    rows = Rows.TOKENS
    ids = Value(1, 2, rows, is_ids=True)
    return ops.Route(Value(0, 6, rows), ids, Value(2, 2, rows), **more)


LOGITS = np.array([[0.1, 2.0, -1.0, 1.5, 1.9, 0.3]], np.float32)


def test_route_softmax_norm_and_scale() -> None:
    per_expert = np.arange(1, 7, dtype=np.float32)
    ids, w = route(route_op(norm=True, by=2.0), LOGITS, None, per_expert)
    p = np.exp(LOGITS[0, [1, 4]])
    assert ids.tolist() == [[1, 4]]
    np.testing.assert_allclose(w[0], p / p.sum() * 2 * [2, 5], rtol=1e-6)


def test_route_bias_chooses_but_does_not_weigh() -> None:
    bias = np.array([9, 0, 0, 0, 0, 8], np.float32)
    ids, w = route(route_op(score="sigmoid"), LOGITS, bias, None)
    assert ids.tolist() == [[0, 5]]
    np.testing.assert_allclose(w[0], 1 / (1 + np.exp(-LOGITS[0, [0, 5]])), rtol=1e-6)


@pytest.mark.parametrize(("score", "chosen"), [("max", [1, 0]), ("top2", [4, 3])])
def test_route_keeps_the_best_groups(score: Any, chosen: list[int]) -> None:
    """Group 0 has the largest score (2.0), group 1 the largest sum of two (3.4)."""
    op = route_op(score="softmax_topk", groups=2, groups_used=1, group_score=score)
    assert route(op, LOGITS, None, None)[0].tolist() == [chosen]


def test_route_ties_go_to_the_lower_id() -> None:
    assert route(route_op(), np.zeros((1, 6), np.float32), None, None)[0].tolist() == [[0, 1]]


def test_attention_with_everything() -> None:
    """Softcap, slopes, sinks, a window, grouped heads and a continued sequence, term by term."""
    n, past, n_kv, group, dk, dv, window = 4, 7, 2, 3, 5, 3, 6
    total = past + n
    q = RNG.standard_normal((n, n_kv * group, dk)).astype(np.float32)
    k = RNG.standard_normal((total, n_kv, dk)).astype(np.float32)
    v = RNG.standard_normal((total, n_kv, dv)).astype(np.float32)
    sinks = RNG.standard_normal((n_kv, group)).astype(np.float32)
    slopes = np.abs(RNG.standard_normal((n_kv, group))).astype(np.float32)
    slots = RNG.permutation(20)[:total]
    pages = KvPages(np.zeros((20, n_kv, dk), np.float32), np.zeros((20, n_kv, dv), np.float32))
    pages.keys[slots], pages.values[slots] = k, v
    terms = Terms(n_kv, group, 0.7, 2.0, window - 1, 0, sinks, slopes)
    found = attend(q.reshape(n, -1), Run(0, n, past, slots), pages, terms)
    expected = np.zeros((n, n_kv * group, dv))
    for i in range(n):
        pos = past + i
        for head in range(n_kv * group):
            j, g = divmod(head, group)
            seen = np.arange(pos - window + 1, pos + 1)
            s = 2 * np.tanh(0.7 * (k[seen, j] @ q[i, head].astype(float)) / 2)
            s = s - slopes[j, g] * (pos - seen)
            e = np.exp(s)
            expected[i, head] = e @ v[seen, j] / (e.sum() + math.exp(sinks[j, g]))
    np.testing.assert_allclose(found, expected.reshape(n, -1), atol=3e-6)


def test_a_centered_convolution_takes_as_many_rows_behind_as_ahead() -> None:
    x, taps = (RNG.standard_normal(shape).astype(np.float32) for shape in ((9, 6), (6, 5)))
    expected = [np.convolve(x[:, c], taps[c, ::-1], "same") for c in range(6)]
    np.testing.assert_allclose(convolve_centered(x, taps), np.array(expected).T, atol=1e-5)
