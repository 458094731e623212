"""The ops of experts on the native backend: the reference's choices, products by the law.

The programs are made of the ops alone: a table of rows, a router that reads a row's first columns,
experts. A token's row then says which experts it gets.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.kernels.backend import Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program import ops
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Use, Value, WeightRef
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels import law
from tests.kernels.kl import one_sequence
from tests.kernels.random_weights import with_format

native = pytest.importorskip("edgeinfer.kernels.native._native")

N_ROWS = 40  # of the table: the tokens a step may have
Floats = npt.NDArray[np.float32]


# -- programs of a few ops -----------------------------------------------------------------------


@dataclass
class Draft:
    """A program being written, and its tensors."""

    table: Floats
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.b = Builder("test", self.tensors)
        self.add("token_embd.weight", self.table)
        self.x = self.b.rows(self.b.embed("token_embd", *self.table.shape))

    def add(self, name: str, array: Floats, format_name: str = "F32", seed: int = 0) -> WeightRef:
        made, shape, raw = with_format(array, format_name, seed)
        self.tensors[name] = Tensor(name, shape, FORMATS[made], np.frombuffer(raw, np.uint8))
        return WeightRef(name, shape, Use.MATRIX if len(shape) > 1 else Use.VECTOR)

    def route(self, logits: Value, k: int, **how: Any) -> tuple[Value, Value]:
        ids, w = self.b.value(k, logits.rows, is_ids=True), self.b.value(k, logits.rows)
        self.b._emit(ops.Route(logits, ids, w, **how))
        return ids, w

    def finish(self, out: Value) -> tuple[Program, dict[str, Tensor]]:
        self.b.output("logits", out)

        class Sizes:
            n_vocab, n_embd, n_layers, n_ctx, n_ctx_train = out.width, self.x.width, 1, 64, 64

        return self.b.finish(Sizes()), self.tensors


def run(
    made: tuple[Program, dict[str, Tensor]],
    tokens: list[int],
    backend: Any = BACKEND,
    n_threads: int = 2,
    activations: str = "fine",
    **options: Any,
) -> Floats:
    """The output's rows for these tokens in one step."""
    limits = Limits(n_ctx=64, n_pages=1, n_batch=64, n_threads=n_threads, activations=activations)
    executable = backend.compile(*made, limits, **options)
    executable.n_vocab = N_ROWS  # ids are rows of the table, however narrow the output is
    found = executable.run(one_sequence(tokens, 0, range(len(tokens)))).copy()
    if backend is BACKEND:
        executable.close()
    return found


ALL = list(range(N_ROWS))


def bits(x: Floats) -> npt.NDArray[np.uint32]:
    return x.view(np.uint32)


# -- the choice ----------------------------------------------------------------------------------


def chosen(
    logits: Floats, k: int, backend: Any, **how: Any
) -> tuple[npt.NDArray[np.int64], Floats]:
    """The ids and the weights a backend makes of these logits; bias and scale are arrays."""
    found = []
    for shown in ("ids", "w"):
        d = Draft(logits)
        n = logits.shape[1]
        refs = {name: d.add(name, how[name]) for name in ("bias", "scale") if name in how}
        ids, w = d.route(d.x, k, **(how | refs))
        if shown == "w":
            out = w
        else:  # an answer of 0 and the expert's number as its bias
            numbers = d.add("numbers", np.arange(n, dtype=np.float32)[:, None])
            zeros = d.add("zeros", np.zeros((n, 1, n), np.float32))
            out = d.b.value(k, w.rows)
            d.add("blank.weight", np.zeros_like(logits))
            blank = d.b.rows(d.b.embed("blank", *logits.shape))
            d.b._emit(ops.ExpertLinear(blank, ids, zeros, out, numbers))
        found.append(run(d.finish(out), list(range(len(logits))), backend))
    return found[0].astype(np.int64), found[1]


def numbers(n: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


CHOICES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "softmax": (8, 2, {}),
    "softmax, sum 1": (60, 8, {"norm": True}),
    "256 experts": (256, 8, {"norm": True, "by": 2.5}),
    "all experts": (7, 7, {"norm": True}),
    "one expert": (64, 1, {"scale": numbers(64, 1)}),
    "the only expert": (1, 1, {}),
    "sigmoid": (16, 4, {"score": "sigmoid"}),
    "sigmoid, bias": (
        256,
        8,
        {"score": "sigmoid", "bias": numbers(256, 2), "norm": True, "norm_eps": 1e-20, "by": 2.5},
    ),
    "softmax over the chosen": (32, 4, {"score": "softmax_topk"}),
    "softmax over the chosen, bias": (32, 4, {"score": "softmax_topk", "bias": numbers(32, 3)}),
    "square root of softplus": (20, 3, {"score": "sqrt_softplus", "norm": True, "by": 0.7}),
    "least sum": (12, 2, {"norm": True, "norm_min": 0.5, "score": "sigmoid"}),
    "groups by their two best": (32, 4, {"groups": 8, "groups_used": 3, "score": "sigmoid"}),
    "groups by their best": (32, 4, {"groups": 4, "groups_used": 2, "group_score": "max"}),
    "groups of one": (16, 4, {"groups": 16, "groups_used": 5, "group_score": "max"}),
    "groups and bias": (
        24,
        6,
        {"groups": 4, "groups_used": 2, "score": "sigmoid", "bias": numbers(24, 4), "norm": True},
    ),
    "every group": (24, 6, {"groups": 4, "groups_used": 4, "scale": numbers(24, 5)}),
}


@pytest.mark.parametrize("case", CHOICES)
def test_choices_are_the_references(case: str) -> None:
    n_experts, k, how = CHOICES[case]
    logits = 3 * np.random.default_rng(n_experts).standard_normal((N_ROWS, n_experts))
    found, expected = (chosen(logits.astype("f4"), k, b, **how) for b in (BACKEND, REFERENCE))
    assert (found[0] == expected[0]).all()
    np.testing.assert_allclose(found[1], expected[1], rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("case", ["softmax", "sigmoid, bias", "groups and bias"])
def test_choices_have_the_same_bits_everywhere(case: str) -> None:
    n_experts, k, how = CHOICES[case]
    d = Draft(3 * numbers(N_ROWS * n_experts, 8).reshape(N_ROWS, n_experts))
    refs = {name: d.add(name, how[name]) for name in ("bias", "scale") if name in how}
    _, w = d.route(d.x, k, **(how | refs))
    made = d.finish(w)
    whole = run(made, ALL)
    for level in isa.levels():
        for n_threads in (1, 3):
            found = run(made, ALL, isa_name=level, n_threads=n_threads)
            assert (bits(found) == bits(whole)).all()
    assert (bits(run(made, ALL[5:6])) == bits(whole[5:6])).all()


def test_ties_go_to_the_lower_id() -> None:
    logits = np.zeros((3, 20), np.float32)
    logits[1, [3, 9]] = 1
    logits[2, 11:] = 1
    ids, _ = chosen(logits, 3, BACKEND, norm=True)
    assert ids.tolist() == [[0, 1, 2], [3, 9, 0], [11, 12, 13]]


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "softmax_topk", "sqrt_softplus"])
@pytest.mark.parametrize("groups", [1, 3])
def test_no_logit_leads_out_of_the_experts(score: str, groups: int) -> None:
    """Each row gets different experts in range; what is not a number stays none."""
    special = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0, 1], np.float32)
    logits = np.random.default_rng(1).choice(special, (N_ROWS, 12)).astype(np.float32)
    logits[0] = np.nan
    logits[1] = -np.inf
    logits[2] = [0, *[np.nan] * 11]
    ids, w = chosen(logits, 4, BACKEND, score=score, groups=groups, groups_used=groups)
    assert ids.min() >= 0 and ids.max() < 12
    assert all(len(set(row)) == 4 for row in ids.tolist())
    assert np.isnan(w[0]).all()


# -- the experts' products -----------------------------------------------------------------------

FORMAT_CASES = ("Q4_K", "Q6_K", "Q8_0", "Q4_1", "F16", "F32")
N_EXPERTS, N_IN, N_OUT = 9, 256, 40


def rows_for(wishes: list[list[int]]) -> Floats:
    """Rows whose first columns, which the router reads, rank the wished experts in this order."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((len(wishes), N_IN)).astype(np.float32)
    for row, wish in zip(rows, wishes, strict=True):
        for rank, expert in enumerate(wish):
            row[expert] = 8 - rank
    return rows


def routed(d: Draft, k: int, n_experts: int = N_EXPERTS) -> tuple[Value, Value]:
    d.add("router.weight", np.eye(n_experts, N_IN, dtype=np.float32))
    logits = d.b.linear(d.x, "router", n_experts)
    return d.route(logits, k, norm=True)


def matrices(format_name: str, shape: tuple[int, ...], seed: int) -> tuple[Floats, str, int]:
    values = np.random.default_rng(seed).standard_normal(shape) * shape[-1] ** -0.5
    return values.astype(np.float32), format_name, seed


def by_the_law(tensor: Tensor, expert: int, x: Floats, fine: bool = True) -> Floats:
    """One expert's answers to some rows, by the dense law."""
    _, n_out, n_in = tensor.shape
    rows = tensor.data.reshape(tensor.shape[0], n_out, -1)[expert]
    return law.matmul(rows, tensor.format.name, x.reshape(-1, n_in), fine)


# Who wants whom: all the same two; each its own, one wanted by a single row; all of them.
WISHES: dict[str, tuple[int, list[list[int]]]] = {
    "all want the same": (2, [[4, 7]] * N_ROWS),
    "one wants what nobody else does": (2, [[8, 0]] + [[3, 5]] * (N_ROWS - 1)),
    "mixed": (3, [[(t * t) % 9, (t * t + 1 + t % 3) % 9, (t * t + 5) % 9] for t in ALL]),
    "every expert": (9, [[(t + j) % 9 for j in range(9)] for t in ALL]),
    "one expert a row": (1, [[t % 4] for t in ALL]),
}


@pytest.mark.parametrize("wishes", WISHES)
@pytest.mark.parametrize("format_name", FORMAT_CASES)
def test_an_experts_answer_is_the_dense_product(format_name: str, wishes: str) -> None:
    k, wished = WISHES[wishes]
    d = Draft(rows_for(wished))
    ids, _ = routed(d, k)
    weight = d.add("w", *matrices(format_name, (N_EXPERTS, N_OUT, N_IN), 3))
    out = d.b.value(k * N_OUT, ids.rows)
    d.b._emit(ops.ExpertLinear(d.x, ids, weight, out))
    found = run(d.finish(out), ALL).reshape(N_ROWS, k, N_OUT)
    for expert in range(N_EXPERTS):
        rows, slots = np.nonzero(np.array(wished) == expert)
        if len(rows):
            expected = by_the_law(d.tensors["w"], expert, d.table[rows])
            assert (bits(found[rows, slots]) == bits(expected)).all()


@pytest.mark.parametrize("coarse", [False, True])
def test_scale_and_bias_follow_the_product(coarse: bool) -> None:
    d = Draft(rows_for(WISHES["mixed"][1]))
    ids, _ = routed(d, 3)
    weight = d.add("w", *matrices("Q4_K", (N_EXPERTS, N_OUT, N_IN), 3))
    bias, scale = numbers(N_EXPERTS * N_OUT, 6).reshape(N_EXPERTS, N_OUT), numbers(N_EXPERTS, 7)
    out = d.b.value(3 * N_OUT, ids.rows)
    refs = d.add("bias", bias), d.add("scale", scale)
    d.b._emit(ops.ExpertLinear(d.x, ids, weight, out, *refs))
    activations = "auto" if coarse else "fine"
    found = run(d.finish(out), ALL, activations=activations).reshape(N_ROWS, 3, N_OUT)
    for t, wish in enumerate(WISHES["mixed"][1]):
        for j, expert in enumerate(wish):
            y = by_the_law(d.tensors["w"], expert, d.table[t : t + 1], fine=not coarse)[0]
            assert (bits(found[t, j]) == bits(y * scale[expert] + bias[expert])).all()


def test_slots_are_summed_in_rank_order() -> None:
    """One product, then one fused step for each further slot; few rows and many alike."""
    k, wished = WISHES["mixed"]
    outs = []
    for shown in ("y", "w", "sum"):
        d = Draft(rows_for(wished))
        ids, w = routed(d, k)
        weight = d.add("w", *matrices("Q6_K", (N_EXPERTS, N_OUT, N_IN), 3))
        y = d.b.value(k * N_OUT, ids.rows)
        d.b._emit(ops.ExpertLinear(d.x, ids, weight, y))
        outs.append(d.finish({"y": y, "w": w}.get(shown) or d.b.combine(y, w)))
    y, w = run(outs[0], ALL).reshape(N_ROWS, k, N_OUT), run(outs[1], ALL)
    expected = y[:, 0] * w[:, :1]
    for j in range(1, k):
        expected = law.fma(y[:, j], w[:, j : j + 1], expected)
    assert (bits(run(outs[2], ALL)) == bits(expected)).all()
    for n in (1, 2, 11):
        assert (bits(run(outs[2], ALL[:n])) == bits(expected[:n])).all()


# -- fused and not -------------------------------------------------------------------------------

N_FF = 96


def mlp(
    d: Draft, k: int, how: str, fn: str = "silu", n_ff: int = N_FF, bias: bool = False
) -> Value:
    """Experts of gate, up and down; `how` says what the file holds and what reads what."""
    ids, w = routed(d, k)
    stack = {"gate": n_ff, "up": n_ff}
    if how == "joint":
        stack = {"gate_up": 2 * n_ff}
    elif how == "plain":
        stack = {"up": n_ff}
    made = []
    for seed, (name, width) in enumerate(stack.items()):
        shape = (N_EXPERTS, width, N_IN)
        d.add(f"{name}.weight", *matrices("Q4_K", shape, seed))
        if bias:
            d.add(f"{name}.bias", numbers(N_EXPERTS * width, seed).reshape(N_EXPERTS, width))
        made.append(d.b.expert_linear(d.x, ids, name, shape))
    if how == "joint":
        made = list(d.b.split(made[0], n_ff, n_ff, groups=k))
    h = d.b.act(made[0], fn) if how == "plain" else d.b.gated(made[0], made[1], fn)  # type: ignore[arg-type]
    shape = (N_EXPERTS, N_IN, n_ff)
    d.add("down.weight", *matrices("Q8_0" if n_ff % 32 == 0 else "F16", shape, 8))
    y = d.b.expert_linear(h, ids, "down", shape)
    out = d.b.combine(y, w)
    if how == "shared read":  # a second reader keeps everything apart
        out = d.b.add(out, d.b.combine(h, w)) if n_ff == N_IN else out
    return d.b.add(d.x, out)


SHAPES: dict[str, dict[str, Any]] = {
    "gate and up": {"how": "two"},
    "gate and up with biases": {"how": "two", "bias": True},
    "joint": {"how": "joint"},
    "joint with biases": {"how": "joint", "bias": True},
    "joint, not whole blocks": {"how": "joint", "bias": True, "n_ff": 40},
    "clamped": {"how": "joint", "bias": True, "fn": "swiglu_oai"},
    "clamped, not whole blocks": {"how": "two", "n_ff": 40, "fn": "swiglu_oai"},
    "plain": {"how": "plain", "fn": "relu2"},
    "not whole blocks": {"how": "two", "n_ff": 40, "fn": "gelu_tanh"},
    "several readers": {"how": "shared read", "n_ff": N_IN},
}


@pytest.mark.parametrize("k", [1, 3, 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_of_experts_is_near_the_references(shape: str, k: int) -> None:
    d = Draft(rows_for([[(t * t + j * (1 + t % 2)) % 9 for j in range(k)] for t in ALL]))
    made = d.finish(mlp(d, k, **SHAPES[shape]))
    found, expected = run(made, ALL), run(made, ALL, REFERENCE)
    length = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(found - expected, axis=1) < 1e-3 * length).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_gets_the_same_bits_in_any_company(shape: str) -> None:
    d = Draft(rows_for(WISHES["mixed"][1]))
    made = d.finish(mlp(d, 3, **SHAPES[shape]))
    whole = run(made, ALL)
    for level in isa.levels():
        assert (bits(run(made, ALL, isa_name=level)) == bits(whole)).all()
    for n_threads in (1, 3):
        assert (bits(run(made, ALL, n_threads=n_threads)) == bits(whole)).all()
    for part in ([7], [7, 30], ALL[::-1], ALL[3:25]):
        assert (bits(run(made, part)) == bits(whole[part])).all()
