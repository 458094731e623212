"""A tensor's sizes follow from its shape and format."""

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
