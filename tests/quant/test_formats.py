"""The table of formats against the gguf package's."""

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.quant.formats import FORMATS, by_id

ACTIVATION_ONLY = {"Q8_1", "Q8_K"}


def test_each_row_is_the_gguf_packages():
    """Either side may know a type the other does not have yet; where both do, they agree."""
    theirs = {
        kind.name: (int(kind), *GGML_QUANT_SIZES[kind])
        for kind in GGMLQuantizationType
        if kind.name not in ACTIVATION_ONLY
    }
    ours = {name: (row.ggml_id, row.block_size, row.block_bytes) for name, row in FORMATS.items()}
    both = ours.keys() & theirs.keys()
    assert len(both) >= 30
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}


def test_by_id_returns_the_row():
    for row in FORMATS.values():
        assert by_id(row.ggml_id) is row


@pytest.mark.parametrize("ggml_id", [9, 15, 42, 40000, -1, 2**32 - 1])
def test_unknown_id_is_named(ggml_id):
    with pytest.raises(UnsupportedModelError, match=f"unknown type id {ggml_id} .known: F32, F16"):
        by_id(ggml_id)


def test_removed_type_is_named_with_the_way_out():
    with pytest.raises(UnsupportedModelError, match=r"Q4_0_4_4 \(id 31\) was removed"):
        by_id(31)


def test_row_bytes_of_whole_blocks():
    assert FORMATS["Q4_1"].row_bytes(576) == 18 * 20
    assert FORMATS["F16"].row_bytes(3) == 6


@pytest.mark.parametrize("n_columns", [0, -256, 1, 255, 257])
def test_row_bytes_refuses_part_of_a_block(n_columns):
    with pytest.raises(ModelFormatError, match=f"row length {n_columns} .need .* multiple of 256"):
        FORMATS["Q4_K"].row_bytes(n_columns)
