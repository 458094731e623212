"""Recurrent ops alone: native equals the law, the reference what it stands for, on every road.

A program looks its inputs up in a table, runs one op and returns what it gives, so the bits are
those of the op. The roads: chunks, company, threads, instruction sets, states saved on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, ModelClosedError, UnsupportedModelError
from edgeinfer.kernels.backend import Batch, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program import ops
from edgeinfer.program.program import Program
from edgeinfer.program.states import Conv, Delta, Ssm
from edgeinfer.program.values import Rows, Use, Value, WeightRef
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels import law_recurrence as law

pytest.importorskip("edgeinfer.kernels.native._native")

N_VOCAB, N_TOKENS, N_SNAPSHOTS = 40, 37, 16
TOKENS = np.random.default_rng(2).integers(0, N_VOCAB, N_TOKENS).tolist()
# A backend takes as many tokens as there are logits, so an op returns at least so many columns.
SHAPES = {
    "conv": {"n": 150, "taps": 4, "bias": True},  # columns of a chunk and some more
    "conv, two taps": {"n": 48, "taps": 2, "bias": False},
    "conv, odd": {"n": 41, "taps": 9, "bias": True},
    "scan": {"heads": 4, "groups": 2, "dim": 84, "state": 10},
    "scan, more than a part holds": {"heads": 2, "groups": 1, "dim": 80, "state": 130},
    "scan, one group": {"heads": 3, "groups": 1, "dim": 16, "state": 33},
    "scan, tiny": {"heads": 14, "groups": 7, "dim": 3, "state": 1},
    "delta, tiled": {"k_heads": 2, "v_heads": 4, "key": 6, "value": 150},
    "delta, grouped": {"k_heads": 2, "v_heads": 6, "key": 33, "value": 20},
    "delta, tiny": {"k_heads": 40, "v_heads": 40, "key": 1, "value": 1},
}


@dataclass(frozen=True)
class Case:
    """A program of one op over a table of its inputs, and how a row of them is computed."""

    program: Program
    tensors: dict[str, Tensor]
    table: np.ndarray
    state: np.ndarray  # at the start
    turn: Callable[..., np.ndarray]  # of the law
    exact: Callable[..., np.ndarray]
    operands: Callable[[np.ndarray], tuple[Any, ...]]  # those of a row of the table


class Maker:
    """Values cut from one embedding, weights, and the program around an op."""

    def __init__(self, *widths: int) -> None:
        self.rng = np.random.default_rng(7)
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[ops.Op] = []
        self.widths = widths
        self.table = self.rng.standard_normal((N_VOCAB, sum(widths))).astype(np.float32)
        self.n_values = 0
        self.parts: list[Value] = []

    def cut(self) -> list[Value]:
        """Emit the lookup, and splits of at most three pieces."""
        rest = self.value(sum(self.widths))
        table = self.weight("table", self.table, Use.TABLE)
        self.ops.append(ops.Embed(table, rest))
        left = list(self.widths)
        while len(left) > 1:
            sizes = left[:2] + ([sum(left[2:])] if left[2:] else [])
            outs = tuple(self.value(size) for size in sizes)
            self.ops.append(ops.Split(rest, outs, tuple(sizes)))
            self.parts += outs[:2]
            left, rest = left[2:], outs[-1]
            if len(left) == 1:
                self.parts.append(rest)
        return self.parts or [rest]

    def value(self, width: int, rows: Rows = Rows.TOKENS) -> Value:
        self.n_values += 1
        return Value(self.n_values, width, rows)

    def weight(self, name: str, array: np.ndarray, use: Use = Use.VECTOR) -> WeightRef:
        data = np.ascontiguousarray(array, np.float32)
        self.tensors[name] = Tensor(name, data.shape, FORMATS["F32"], data.view(np.uint8).ravel())
        return WeightRef(name, data.shape, use)

    def finish(self, op: ops.Op, state: Any) -> Program:
        out = op.writes()[0]
        logits = self.value(out.width, Rows.WANTED)
        return Program(
            arch="one op",
            ops=(*self.ops, op, ops.SelectRows(out, logits)),
            constants=(),
            states=(state,),
            outputs={"logits": logits},
            n_vocab=out.width,
            n_embd=out.width,
            n_layers=1,
            n_ctx=256,
            n_ctx_train=256,
        )


def conv_case(n: int, taps: int, bias: bool) -> Case:
    made = Maker(n)
    weight, added = made.rng.standard_normal((n, taps)), made.rng.standard_normal(n)
    weight, added = weight.astype(np.float32), added.astype(np.float32) if bias else None
    (x,) = made.cut()
    b = made.weight("bias", added) if bias else None
    op = ops.Conv1d(x, made.weight("taps", weight), b, made.value(n), 0)
    program, state = made.finish(op, Conv(0, n, taps - 1)), np.zeros((taps - 1, n), np.float32)
    return Case(
        program, made.tensors, made.table, state, law.convolve, law.exact_convolve,
        lambda row: (row, weight, added),
    )  # fmt: skip


def scan_case(heads: int, groups: int, dim: int, state: int) -> Case:
    made = Maker(heads * dim, groups * state, groups * state, heads)
    a = -np.exp(made.rng.standard_normal(heads)).astype(np.float32)
    d, bias = made.rng.standard_normal((2, heads)).astype(np.float32)
    x, b, c, dt = made.cut()
    column = (heads, 1)  # as files hold them
    weights = [made.weight(name, w.reshape(column)) for name, w in (("a", a), ("d", d))]
    weights.append(made.weight("dt", bias))
    op = ops.SsmScan(x, b, c, dt, *weights, made.value(x.width), 0, heads, groups, state)

    def operands(row: np.ndarray) -> tuple[Any, ...]:
        x, b, c, dt = np.split(row, np.cumsum(made.widths)[:-1])
        b, c = (np.repeat(part.reshape(groups, state), heads // groups, axis=0) for part in (b, c))
        return x.reshape(heads, dim), b, c, dt, a, d, bias

    return Case(
        made.finish(op, Ssm(0, heads, dim, state)), made.tensors, made.table,
        np.zeros((heads, state, dim), np.float32), law.scan, law.exact_scan, operands,
    )  # fmt: skip


def delta_case(k_heads: int, v_heads: int, key: int, value: int, *, tiled: bool) -> Case:
    made = Maker(k_heads * key, k_heads * key, v_heads * value, v_heads, v_heads)
    gates = slice(sum(made.widths[:3]), sum(made.widths[:4]))
    made.table[:, gates] = -np.exp(made.table[:, gates])
    made.table[:, : sum(made.widths[:2])] /= np.sqrt(np.float32(key))  # of about unit length
    q, k, v, g, beta = made.cut()
    how = (0, k_heads, v_heads, "tiled" if tiled else "grouped")
    op = ops.DeltaNet(q, k, v, g, beta, made.value(v.width), *how)
    heads = np.arange(v_heads)
    of_key = heads % k_heads if tiled else heads // (v_heads // k_heads)

    def operands(row: np.ndarray) -> tuple[Any, ...]:
        q, k, v, g, beta = np.split(row, np.cumsum(made.widths)[:-1])
        q, k = (part.reshape(k_heads, key)[of_key] for part in (q, k))
        return q, k, v.reshape(v_heads, value), g, beta

    return Case(
        made.finish(op, Delta(0, v_heads, key, value)), made.tensors, made.table,
        np.zeros((v_heads, key, value), np.float32), law.delta, law.exact_delta, operands,
    )  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest) -> Case:
    kind, _, how = request.param.partition(", ")
    sizes: dict[str, Any] = SHAPES[request.param]
    if kind == "delta":
        return delta_case(**sizes, tiled=how != "grouped")
    return conv_case(**sizes) if kind == "conv" else scan_case(**sizes)


def by_law(case: Case, tokens: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the law's outputs of tokens and the states after each."""
    state, rows, states = case.state.copy(), [], []
    for token in tokens:
        rows.append(case.turn(state, *case.operands(case.table[token])).ravel())
        states.append(state.copy())
    return np.stack(rows), states


def compiled(case: Case, *, backend: Any = BACKEND, n_threads: int = 1, **how: Any) -> Any:
    limits = Limits(n_ctx=256, n_pages=4, n_batch=64, n_threads=n_threads, n_snapshots=N_SNAPSHOTS)
    return backend.compile(case.program, case.tensors, limits, **how)


def step(
    parts: list[tuple[list[int], int, int]], saves: list[tuple[int, int]], **wrong: Any
) -> Batch:
    """Return a step of sequences: tokens, first position, the snapshot each begins with."""
    sequences = [i for i, (tokens, *_) in enumerate(parts) for _ in tokens]
    n = len(sequences)
    fields: dict[str, Any] = {
        "tokens": [t for tokens, *_ in parts for t in tokens],
        "positions": [first + i for tokens, first, _ in parts for i in range(len(tokens))],
        "sequences": sequences,
        "page_tables": [list(range(4))] * len(parts),
        "wanted": list(range(n)),
        "snapshots": [snapshot for *_, snapshot in parts],
        "saved_rows": [row for row, _ in saves],
        "saved_snapshots": [snapshot for _, snapshot in saves],
    }
    fields |= wrong
    return Batch(**{name: np.array(values, np.int32) for name, values in fields.items()})


def whole(executable: Any) -> np.ndarray:
    rows = executable.run(step([(TOKENS, 0, -1)], [(N_TOKENS - 1, 3)])).copy()
    executable.close()
    return rows


def test_the_reference_computes_what_the_op_says(case: Case) -> None:
    state = case.state.astype(np.float64)
    expected = []
    for token in TOKENS:
        operands = case.operands(case.table[token].astype(np.float64))
        expected.append(case.exact(state, *operands).ravel())
    found = whole(compiled(case, backend=REFERENCE))
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("level", isa.levels() if isa.why_unavailable() is None else [])
def test_native_is_the_law_at_every_level(case: Case, level: str) -> None:
    assert (whole(compiled(case, isa_name=level)) == by_law(case, TOKENS)[0]).all()


def test_any_number_of_threads_gives_the_same(case: Case) -> None:
    assert (whole(compiled(case, n_threads=3)) == by_law(case, TOKENS)[0]).all()


@pytest.mark.parametrize("chunk", [1, 2, 5, 36])
def test_chunks_give_the_same(case: Case, chunk: int) -> None:
    executable, rows = compiled(case), []
    for i, first in enumerate(range(0, N_TOKENS, chunk)):
        part = TOKENS[first : first + chunk]
        rows.append(executable.run(step([(part, first, i % 2)], [(len(part) - 1, 1 - i % 2)])))
        rows[-1] = rows[-1].copy()
    executable.close()
    assert (np.concatenate(rows) == by_law(case, TOKENS)[0]).all()


def test_sequences_in_one_step_keep_apart(case: Case) -> None:
    executable = compiled(case, n_threads=2)
    one, other, third = TOKENS[:20], TOKENS[7:15], TOKENS[3:4]
    executable.run(step([(one[:9], 0, -1), (other[:3], 0, 5)], [(8, 0), (11, 1)]))
    parts = [(other[3:], 3, 1), (third, 0, 0), (one[9:], 9, 0)]
    rows = executable.run(step(parts, [(4, 2), (5, 4), (16, 3)]))
    expected = [by_law(case, other)[0][3:], by_law(case, third)[0], by_law(case, one)[0][9:]]
    assert (rows == np.concatenate(expected)).all()
    executable.close()


def test_states_saved_on_the_way_are_those_of_the_rows(case: Case) -> None:
    """Of a step in the middle of a sequence, one row's twice; and what was read is unchanged."""
    executable = compiled(case)
    executable.run(step([(TOKENS[:5], 0, -1)], [(4, 9)]))
    before = executable.read_snapshot(9)
    saves = [(0, 1), (3, 2), (3, 4), (10, 5), (11, 6)]
    executable.run(step([(TOKENS[5:17], 5, 9)], saves))
    expected, states = by_law(case, TOKENS)
    for row, snapshot in saves:
        floats = executable.read_snapshot(snapshot).view(np.float32)
        assert (floats[: case.state.size] == states[5 + row].ravel()).all()
        assert not floats[case.state.size :].any()
        rows = executable.run(step([(TOKENS[row + 6 :], row + 6, snapshot)], [(30 - row, 8)]))
        assert (rows == expected[row + 6 :]).all()
    assert (executable.read_snapshot(9) == before).all()
    executable.close()


def test_a_state_that_was_written_goes_on_as_the_one_that_was_read(case: Case) -> None:
    one, other = compiled(case), compiled(case)
    one.run(step([(TOKENS[:20], 0, -1)], [(19, 7)]))
    other.write_snapshot(2, one.read_snapshot(7))
    rows = other.run(step([(TOKENS[20:], 20, 2)], [(N_TOKENS - 21, 3)]))
    assert (rows == by_law(case, TOKENS)[0][20:]).all()
    one.close()
    other.close()


SOUND = ([(TOKENS[:3], 4, 1), (TOKENS[:2], 0, -1)], [(1, 4), (2, 2), (4, 3)])
WRONG: dict[str, dict[str, Any]] = {
    "last row of each": {"saved_rows": [1, 2], "saved_snapshots": [4, 2]},
    "saved_rows: .*ascending": {"saved_rows": [2, 1, 4]},
    r"saved_rows: .*\[1, 2, 5\]": {"saved_rows": [1, 2, 5]},
    "saved_snapshots: .*different": {"saved_snapshots": [4, 4, 3]},
    "which are read": {"saved_snapshots": [4, 2, 1]},
    r"saved_snapshots: .*\[4, 2, 16\]": {"saved_snapshots": [4, 2, N_SNAPSHOTS]},
    r"snapshots: found \[-1\]": {"snapshots": [-1, -1]},
    r"snapshots: found int32 \(1,\)": {"snapshots": [1]},
}


@pytest.mark.parametrize("backend", [BACKEND, REFERENCE], ids=["native", "reference"])
@pytest.mark.parametrize("said", WRONG)
def test_a_bad_step_is_refused_before_any_work(said: str, backend: Any) -> None:
    executable = compiled(conv_case(n=48, taps=2, bias=False), backend=backend)
    executable.run(step(*SOUND))
    with pytest.raises(InvalidParameterError, match=said):
        executable.run(step(*SOUND, **WRONG[said]))
    executable.close()


@pytest.mark.parametrize("backend", [BACKEND, REFERENCE], ids=["native", "reference"])
def test_a_snapshot_that_is_not_there_is_refused(backend: Any) -> None:
    executable = compiled(conv_case(n=48, taps=2, bias=False), backend=backend)
    data = executable.read_snapshot(0)
    for wrong in (-1, N_SNAPSHOTS):
        with pytest.raises(InvalidParameterError, match="snapshot: id"):
            executable.read_snapshot(wrong)
        with pytest.raises(InvalidParameterError, match="snapshot: id"):
            executable.write_snapshot(wrong, data)
    with pytest.raises(InvalidParameterError, match="snapshot: data"):
        executable.write_snapshot(0, data[:-1])
    executable.close()
    with pytest.raises(ModelClosedError):
        executable.read_snapshot(0)


def test_more_taps_than_a_chunk_holds_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="65 taps"):
        compiled(conv_case(n=4, taps=65, bias=False))
