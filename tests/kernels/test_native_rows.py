"""What the native backend does to pieces of rows, and to heads, is what NumPy and matmuls do."""

import numpy as np
import pytest

from edgeinfer.kernels.native import isa
from edgeinfer.program.values import Use, WeightRef
from edgeinfer.quant.tensor import Tensor
from tests.kernels.test_native_experts import ALL, N_ROWS, Draft, bits, run

N = 60
TABLE = np.random.default_rng(8).standard_normal((N_ROWS, N)).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("piece", range(5))
def test_each_piece_of_a_split_is_its_columns_of_all_groups(groups: int, piece: int) -> None:
    sizes = [n // groups for n in (6, 12, 18, 6, 18)]
    d = Draft(TABLE)
    found = run(d.finish(d.b.split(d.x, *sizes, groups=groups)[piece]), ALL)
    start = sum(sizes[:piece])
    grouped = TABLE.reshape(N_ROWS, groups, -1)[:, :, start : start + sizes[piece]]
    assert (found == grouped.reshape(N_ROWS, -1)).all()


def test_values_are_joined_group_by_group() -> None:
    d = Draft(TABLE)
    first, second, third = d.b.split(d.x, 30, 12, 18)
    found = run(d.finish(d.b.concat(third, second, first, groups=3)), ALL)
    parts = (TABLE[:, 42:], TABLE[:, 30:42], TABLE[:, :30])
    grouped = np.concatenate([part.reshape(N_ROWS, 3, -1) for part in parts], axis=2)
    assert (found == grouped.reshape(N_ROWS, -1)).all()


def test_a_value_of_one_group_is_joined_to_every_group() -> None:
    d = Draft(TABLE)
    each, shared = d.b.split(d.x, 48, 12)
    found = run(d.finish(d.b.concat(shared, each, groups=4, repeat=(True, False))), ALL)
    grouped = np.concatenate(
        [np.repeat(TABLE[:, None, 48:], 4, axis=1), TABLE[:, :48].reshape(N_ROWS, 4, 12)], axis=2
    )
    assert (found == grouped.reshape(N_ROWS, -1)).all()


def test_a_row_times_a_weight_of_one() -> None:
    d = Draft(TABLE)
    d.add("factor.weight", np.array([0.7], np.float32))
    made = d.finish(d.b.mul(d.x, WeightRef("factor.weight", (1,), Use.VECTOR)))
    for level in isa.levels():
        assert (run(made, ALL, isa_name=level) == TABLE * np.float32(0.7)).all()


@pytest.mark.parametrize("format_name", ["F32", "F16", "Q8_0", "Q4_0"])
def test_each_head_is_multiplied_by_its_own_matrix(format_name: str) -> None:
    """To the bits of that matrix alone, whatever the ISA, the threads and the company."""
    n_heads, n_out, n_in = 3, 20, 64
    rng = np.random.default_rng(9)
    d = Draft(rng.standard_normal((N_ROWS, n_heads * n_in)).astype(np.float32))
    weights = rng.standard_normal((n_heads, n_out, n_in)).astype(np.float32)
    d.add("whole.weight", weights, format_name, seed=4)
    made = d.finish(d.b.head_linear(d.x, "whole", n_out, n_heads))
    found = run(made, ALL)
    tensor = d.tensors["whole.weight"]
    for head in range(n_heads):
        alone = Draft(d.table[:, head * n_in : (head + 1) * n_in])
        part = tensor.data.reshape(n_heads, -1)[head]
        alone.tensors["one.weight"] = Tensor("one.weight", (n_out, n_in), tensor.format, part)
        expected = run(alone.finish(alone.b.linear(alone.x, "one", n_out)), ALL)
        assert (found[:, head * n_out : (head + 1) * n_out] == expected).all()
    for level in isa.levels():
        for n_threads in (1, 3):
            again = run(made, ALL, isa_name=level, n_threads=n_threads)
            assert (bits(again) == bits(found)).all()
    assert (bits(run(made, ALL[7:8])) == bits(found[7:8])).all()
