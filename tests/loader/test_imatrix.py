"""Importance matrices from files: both forms, and what is wrong with damaged ones."""

import struct

import numpy as np
import pytest

from edgeinfer.errors import (
    EdgeInferError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
)
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.quant.imatrix import merged
from tests.gguf_writer import gguf_bytes

METADATA = {
    "general.type": "imatrix",
    "imatrix.datasets": ["a.txt", "b.txt"],
    "imatrix.chunk_count": 7,
    "imatrix.chunk_size": 512,
}
DENSE = np.array([[8.0, 2.0, 0.0, 6.0]], np.float32)
EXPERTS = np.array([[1.0, 3.0], [0.0, 0.0], [6.0, 9.0]], np.float32)
TENSORS = {
    "blk.0.attn_q.weight.in_sum2": DENSE,
    "blk.0.attn_q.weight.counts": np.array([[4.0]], np.float32),
    "blk.0.ffn_up_exps.weight.in_sum2": EXPERTS,
    "blk.0.ffn_up_exps.weight.counts": np.array([[2.0], [0.0], [3.0]], np.float32),
}


def test_means_are_sums_by_counts_and_ones_for_an_expert_no_token_came_to(tiny_gguf):
    found = read_imatrix(tiny_gguf(METADATA, TENSORS))
    means = found.means()

    assert means["blk.0.attn_q.weight"].tolist() == [2.0, 0.5, 0.0, 1.5]
    assert means["blk.0.ffn_up_exps.weight"].tolist() == [[0.5, 1.5], [1.0, 1.0], [2.0, 3.0]]
    assert all(values.dtype == np.float32 for values in means.values())
    assert (found.datasets, found.n_chunks, found.chunk_size) == (("a.txt", "b.txt"), 7, 512)


def test_plain_sums_beside_the_squares_change_nothing(tiny_gguf):
    more = TENSORS | {"blk.0.attn_q.weight.in_sum": -DENSE}
    assert read_imatrix(tiny_gguf(METADATA, more)).means().keys() == {
        "blk.0.attn_q.weight",
        "blk.0.ffn_up_exps.weight",
    }


@pytest.mark.parametrize(
    ("metadata", "tensors", "words"),
    [
        ({}, {}, "found 'model' .need 'imatrix'"),
        ({}, {"x.in_sum2": DENSE}, "'x.in_sum2': found without its .counts"),
        ({}, {"x.counts": DENSE}, "'x.counts': found without its .in_sum2"),
        ({}, {"x.in_sum2": DENSE, "x.counts": EXPERTS}, "found 6 counts .need 1"),
        ({}, {"x.in_sum2": -DENSE, "x.counts": DENSE[:, :1]}, "negative"),
        ({}, {"x.in_sum2": DENSE * np.nan, "x.counts": DENSE[:, :1]}, "NaN"),
        ({}, {"x.in_sum2": DENSE.astype(np.float16), "x.counts": DENSE[:, :1]}, "F16 .need F32"),
        ({"imatrix.chunk_count": -1}, {}, "chunk_count"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(metadata, tensors, words, tiny_gguf):
    head = {} if not metadata and not tensors else {"general.type": "imatrix"}
    with pytest.raises(ModelFormatError, match=words):
        read_imatrix(tiny_gguf(head | metadata, tensors))


def dat(*entries, tail=b""):
    body = struct.pack("<i", len(entries))
    for name, count, values in entries:
        body += struct.pack("<i", len(name)) + name
        body += struct.pack(f"<ii{len(values)}f", count, len(values), *values)
    return body + tail


def test_the_older_form_is_read(tmp_path):
    path = tmp_path / "imatrix.dat"
    path.write_bytes(
        dat((b"a", 2, [4.0, 6.0]), (b"b", 1, [1.0]), tail=struct.pack("<ii", 9, 5) + b"x.txt")
    )

    found = read_imatrix(path)

    assert {name: mean.tolist() for name, mean in found.means().items()} == {
        "a": [2.0, 3.0],
        "b": [1.0],
    }
    assert (found.n_chunks, found.datasets) == (9, ("x.txt",))


@pytest.mark.parametrize("form", ["gguf", "dat"])
def test_a_file_cut_anywhere_is_refused_or_whole(form, tmp_path):
    whole = gguf_bytes(METADATA, TENSORS) if form == "gguf" else dat((b"a", 2, [4.0, 6.0]))
    path = tmp_path / "cut"
    for n_bytes in range(0, len(whole) - 32, 7):
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(EdgeInferError):
            read_imatrix(path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (dat(), "no importance matrix"),
        (dat((b"a", -1, [1.0])), "found -1 calls"),
        (dat((b"a", 1, [])), "found 0 values"),
        (dat((b"a", 1, [-1.0])), "negative"),
        (dat((b"a", 1, [1.0]), (b"a", 1, [1.0])), "twice"),
        (dat((b"\xff", 1, [1.0])), "UTF-8"),
        (struct.pack("<ii", 1, 2**31 - 1), "no importance matrix"),
        (struct.pack("<ii", 1, 1000), "field of 1000 bytes"),
        (b"A text of any kind.", "edgeinfer imatrix"),
        (b"short", "no importance matrix"),
    ],
)
def test_what_is_wrong_with_the_older_form_is_said(body, words, tmp_path):
    path = tmp_path / "imatrix.dat"
    path.write_bytes(body)
    with pytest.raises(ModelFormatError, match=words):
        read_imatrix(path)


def test_no_file_is_no_traceback(tmp_path):
    with pytest.raises(ModelNotFoundError, match="none"):
        read_imatrix(tmp_path / "none.gguf")


def test_merging_adds_sums_counts_and_chunks(tiny_gguf):
    one = read_imatrix(tiny_gguf(METADATA, TENSORS))
    both = merged([one, one])

    assert both.n_chunks == 14
    assert both.datasets == ("a.txt", "b.txt")
    assert both.means()["blk.0.attn_q.weight"].tolist() == [2.0, 0.5, 0.0, 1.5]
    assert both.sums["blk.0.ffn_up_exps.weight"].counts.tolist() == [4.0, 0.0, 6.0]


def test_the_older_form_counts_windows_where_the_other_counts_tokens(tiny_gguf, tmp_path):
    counts = np.array([[512.0]], np.float32)
    tensors = {"a.in_sum2": 512 * np.array([[1.0, 2.0]], np.float32), "a.counts": counts}
    gguf = read_imatrix(tiny_gguf(METADATA, tensors))
    path = tmp_path / "imatrix.dat"
    path.write_bytes(dat((b"a", 1, [3.0, 6.0])))  # a window, too

    for parts in ([gguf, read_imatrix(path)], [read_imatrix(path), gguf]):
        assert merged(parts).means()["a"].tolist() == [2.0, 4.0]
    assert merged([read_imatrix(path)]).chunk_size == 512


def test_experts_of_the_older_form_stand_in_one_row(tiny_gguf, tmp_path):
    one = read_imatrix(tiny_gguf(METADATA, TENSORS))
    name = "blk.0.ffn_up_exps.weight"
    path = tmp_path / "imatrix.dat"
    path.write_bytes(dat((name.encode(), 1, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])))
    older = read_imatrix(path)

    for parts in ([one, older], [older, one]):
        both = merged(parts).sums[name]
        assert both.counts.tolist() == [514.0, 512.0, 515.0]
        expected = EXPERTS + 512 * np.arange(1, 7).reshape(3, 2)
        assert both.squares.tolist() == expected.tolist()


def test_matrices_of_different_models_are_not_merged(tiny_gguf):
    one = read_imatrix(tiny_gguf(METADATA, TENSORS))
    tensors = {"blk.0.attn_q.weight.in_sum2": EXPERTS, "blk.0.attn_q.weight.counts": DENSE[:, :3].T}
    other = read_imatrix(tiny_gguf(METADATA, tensors, name="other.gguf"))
    with pytest.raises(InvalidParameterError, match=r"found \(3, 2\) sums .need \(1, 4\)"):
        merged([one, other])
