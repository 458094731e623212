"""Importance matrices written: what the reader and another library find in them."""

import numpy as np
import pytest

from edgeinfer.errors import ResourceError
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.quant.imatrix import Imatrix, Sums
from edgeinfer.writer.imatrix import write_imatrix

SUMS = {
    "blk.0.ffn_up_exps.weight": Sums(np.arange(6.0).reshape(3, 2), np.array([2.0, 0.0, 5.0])),
    "blk.0.attn_q.weight": Sums(np.array([[0.5, 1.25, 3.0]]), np.array([4.0])),
}
IMATRIX = Imatrix(SUMS, ("a.txt", "ß.txt"), 3, 512, "abc")


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"what was there before")
    write_imatrix(path, IMATRIX)

    found = read_imatrix(path)

    assert sorted(found.sums) == sorted(SUMS)
    for name, sums in SUMS.items():
        assert (found.sums[name].squares == sums.squares).all()
        assert (found.sums[name].counts == sums.counts).all()
    assert (found.datasets, found.n_chunks, found.chunk_size, found.origin) == (
        ("a.txt", "ß.txt"), 3, 512, "abc",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == [path]


def test_the_gguf_package_finds_the_tensors_and_keys_that_llama_cpp_writes(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    write_imatrix(path, IMATRIX)

    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    squares = tensors["blk.0.ffn_up_exps.weight.in_sum2"]
    assert squares.shape.tolist() == [2, 3]  # GGUF's order: columns first
    assert squares.tensor_type == gguf.GGMLQuantizationType.F32
    assert squares.data.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert tensors["blk.0.ffn_up_exps.weight.counts"].shape.tolist() == [1, 3]
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["a.txt", "ß.txt"]
    assert reader.fields["imatrix.chunk_count"].contents() == 3
    assert reader.fields["imatrix.chunk_size"].types == [gguf.GGUFValueType.UINT32]


def test_equal_sums_make_equal_files_whatever_their_order(tmp_path):
    files = [tmp_path / "one.gguf", tmp_path / "two.gguf"]
    for path, names in zip(files, (sorted(SUMS), sorted(SUMS, reverse=True)), strict=True):
        write_imatrix(path, Imatrix({name: SUMS[name] for name in names}))
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ResourceError, match="cannot be written"):
        write_imatrix(tmp_path / "none" / "x.gguf", IMATRIX)
