"""The codebooks against the gguf package's, point by point."""

import gguf.quants
import numpy as np
import pytest

from edgeinfer.quant.grids import grid


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"])
def test_points_are_those_of_the_gguf_package(name):
    theirs = getattr(gguf.quants, name)
    theirs.init_grid()
    expected = theirs.grid.reshape(theirs.grid_shape)
    found = grid("IQ1") if name == "IQ1_S" else grid(name)
    assert found.dtype == np.int8
    assert (found.astype(np.float32) == (8 * expected if name == "IQ1_S" else expected)).all()


def test_points_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        grid("IQ3_S")[0] = 0
