"""The gguf package reads a file we wrote: the same bytes, and the same numbers in them."""

import gguf
import numpy as np
import pytest

from edgeinfer import quantize
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.decode import decode
from edgeinfer.quant.recipe import RECIPES
from tests.arch import tiny
from tests.gguf_writer import write_gguf

pytest.importorskip("edgeinfer.kernels.native._native")

METADATA, ARRAYS = tiny.llama(n_embd=256, n_ff=512, dim=64, n_heads=4, bias=False, n_experts=2)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "F32"])
def test_the_gguf_package_reads_the_same_bytes_and_numbers(tmp_path, recipe):
    source = write_gguf(tmp_path / "in.gguf", METADATA, ARRAYS)
    target = tmp_path / "out.gguf"
    report = quantize(source, target, recipe)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(target).tensors}
    with open_gguf(target) as file:
        assert [*theirs] == [*file.tensors]
        for name, ours in file.tensors.items():
            found = theirs[name]
            assert found.tensor_type.name == ours.format.name
            assert found.data.tobytes() == ours.data.tobytes()
            numbers = gguf.quants.dequantize(found.data, found.tensor_type)
            assert np.array_equal(numbers.reshape(ours.shape), decode(ours))
    assert len({tensor.format for tensor in report.tensors}) >= 2
