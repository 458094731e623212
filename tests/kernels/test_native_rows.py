"""The native backend's splits and products of rows are those of NumPy, bit for bit."""

import numpy as np
import pytest

from edgeinfer.kernels.native import isa
from edgeinfer.program.values import Use, WeightRef
from tests.kernels.test_native_experts import ALL, N_ROWS, Draft, run

TABLE = np.random.default_rng(8).standard_normal((N_ROWS, 60)).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("piece", range(5))
def test_each_piece_of_a_split_is_its_columns_of_all_groups(groups: int, piece: int) -> None:
    sizes = [n // groups for n in (6, 12, 18, 6, 18)]
    d = Draft(TABLE)
    found = run(d.finish(d.b.split(d.x, *sizes, groups=groups)[piece]), ALL)
    start = sum(sizes[:piece])
    grouped = TABLE.reshape(N_ROWS, groups, -1)[:, :, start : start + sizes[piece]]
    assert (found == grouped.reshape(N_ROWS, -1)).all()


@pytest.mark.parametrize("level", isa.levels())
def test_a_row_times_a_weight_of_one(level: str) -> None:
    d = Draft(TABLE)
    d.add("factor.weight", np.array([0.7], np.float32))
    made = d.finish(d.b.mul(d.x, WeightRef("factor.weight", (1,), Use.VECTOR)))
    assert (run(made, ALL, isa_name=level) == TABLE * np.float32(0.7)).all()
