"""The compiled decoders give the bits of NumPy's, for every format and whatever the rows hold."""

import numpy as np
import pytest

from edgeinfer.quant.decode import DECODERS
from edgeinfer.quant.decode import decode as decode_slowly
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels.test_matmul import random_rows

pytest.importorskip("edgeinfer.kernels.native._native")

from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.decode import decode


@pytest.mark.parametrize("level", isa.levels())
@pytest.mark.parametrize("name", DECODERS)
def test_a_tensor_decodes_as_with_numpy(name, level):
    rows = random_rows(np.random.default_rng(3), name, 6, 512, "random")
    tensor = Tensor("w", (2, 3, 512), FORMATS[name], rows.ravel())
    found = decode(tensor, isa_name=level)
    assert found.shape == (2, 3, 512)
    assert np.array_equal(found.view(np.uint32), decode_slowly(tensor).view(np.uint32))


@pytest.mark.parametrize("level", isa.levels())
@pytest.mark.parametrize("name", ["F16", "BF16"])
@pytest.mark.parametrize("width", [256, 1])
def test_every_number_of_16_bits_decodes_as_with_numpy(name, level, width):
    """Subnormals, infinities and NaN with them; a NaN may become a quiet one."""
    every = np.arange(1 << 16, dtype="<u2")
    tensor = Tensor("w", (len(every) // width, width), FORMATS[name], every.view(np.uint8))
    found, expected = decode(tensor, isa_name=level), decode_slowly(tensor)
    is_number = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~is_number)
    assert np.array_equal(found[is_number].view(np.uint32), expected[is_number].view(np.uint32))
