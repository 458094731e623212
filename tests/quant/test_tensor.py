"""A tensor's sizes follow from its shape and format."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor


@pytest.mark.parametrize(
    ("shape", "n_rows", "n_bytes"),
    [((512,), 1, 288), ((3, 256), 3, 432), ((2, 3, 512), 6, 1728), ((1, 1, 1, 256), 1, 144)],
)
def test_sizes(shape, n_rows, n_bytes):
    tensor = Tensor("t", shape, FORMATS["Q4_K"], np.arange(n_bytes).astype(np.uint8))
    assert (tensor.n_rows, tensor.n_columns, tensor.n_bytes) == (n_rows, shape[-1], n_bytes)
    assert tensor.row_bytes * n_rows == n_bytes
    assert tensor.row_data.shape == (n_rows, n_bytes // n_rows)
    assert np.shares_memory(tensor.row_data, tensor.data)


@pytest.mark.parametrize("access", [mmap.ACCESS_READ, mmap.ACCESS_COPY])
def test_only_what_a_file_can_bring_back_is_mapped(tmp_path: Path, access: int) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(600))
    with path.open("rb") as file:
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=access), np.uint8)
    for view in (data[8:296], np.frombuffer(memoryview(data)[8:296], np.uint8)):
        assert Tensor("t", (512,), FORMATS["Q4_K"], view).is_mapped == (access == mmap.ACCESS_READ)
    assert not Tensor("t", (512,), FORMATS["Q4_K"], data[8:296].copy()).is_mapped
