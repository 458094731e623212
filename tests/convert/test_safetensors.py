"""A safetensors file is read as it is written; a broken one is refused, naming what is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.convert.checkpoint import open_checkpoint
from edgeinfer.convert.safetensors import open_safetensors
from edgeinfer.convert.strict_json import read_object
from edgeinfer.errors import EdgeInferError, ModelFormatError, UnsupportedModelError
from tests.convert.checkpoints import write_raw

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
B = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}
DATA = np.arange(6, dtype="<f4").tobytes() + np.arange(4, dtype="<u2").tobytes()


def written(path: Path, header: Any, data: bytes = DATA, **options: int) -> Path:
    return write_raw(path, header, data, **options)


def test_tensors_are_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.safetensors", {"__metadata__": {"x": "y"}, "b": B, "a": A})
    file, tensors = open_safetensors(path)
    assert (tensors["a"].shape, tensors["b"].dtype) == ((2, 3), "BF16")
    assert tensors["a"].read(4, 20).view("<f4").tolist() == [1, 2, 3, 4, 5]
    assert tensors["b"].read(0, 8).view("<u2").tolist() == [0, 1, 2, 3]
    file.close()


def test_the_library_reads_the_same(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"x": np.ones((3, 5), np.float16), "y": np.arange(7, dtype=np.int64)}
    library.save_file(arrays, tmp_path / "a.safetensors")
    file, tensors = open_safetensors(tmp_path / "a.safetensors")
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        assert tensors[name].read(0, array.nbytes).tobytes() == array.tobytes()
    file.close()


TWICE = b'{"a": %s, "a": %s}' % ((json.dumps(A).encode(),) * 2)
DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(
    ("header", "kept", "message"),
    [
        ({"a": A | {"data_offsets": [0, 23]}}, 32, "found 23 bytes"),
        ({"a": A | {"data_offsets": [0, 1 << 40]}}, 32, "truncated"),
        ({"a": A | {"data_offsets": [24, 0]}}, 32, "data_offsets"),
        ({"a": A | {"data_offsets": [-24, 0]}}, 32, "data_offsets"),
        ({"a": A | {"data_offsets": [0, 24.0]}}, 32, "data_offsets"),
        ({"a": A | {"shape": [1 << 61, 1 << 61]}}, 32, "its shape needs"),
        ({"a": A | {"shape": [True, 6]}}, 32, "found shape"),
        ({"a": A | {"shape": [1] * 9}}, 32, "found shape"),
        ({"a": A | {"dtype": "F8_E5M2"}}, 32, "found type 'F8_E5M2'"),
        ({"a": A | {"more": 1}}, 32, "need dtype, shape, data_offsets"),
        ({"a": 5}, 32, "need dtype, shape, data_offsets"),
        ({"a": A, "b": B | {"data_offsets": [16, 24]}}, 32, "begins at 16"),
        ({"b": B}, 32, "begins at 24"),
        ({"a": A}, 32, "8 bytes after the last"),
        ({"a": A, "b": B}, 31, "truncated"),
        (TWICE, 24, "found twice"),
        (b'{"a": NaN}', 0, "found NaN"),
        (b"[1, 2]", 0, "found a list"),
        (b'{"a": 1', 0, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", 0, "need finite numbers"),
        (DEEP, 0, "nested too deep"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, header: Any, kept: int, message: str) -> None:
    path = written(tmp_path / "a.safetensors", header, DATA[:kept])
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=message):
        open_safetensors(path)


@pytest.mark.parametrize("n_header", [0, 1, 10_000, 100_000_001, 2**63, 2**64 - 1])
def test_a_header_that_cannot_be_is_refused(tmp_path: Path, n_header: int) -> None:
    path = written(tmp_path / "a.safetensors", {"a": A}, n_header=n_header)
    with pytest.raises(ModelFormatError, match="found a header of"):
        open_safetensors(path)


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x80\x02}q"])
def test_a_pickle_under_another_name_is_refused(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(head + bytes(100))
    with pytest.raises(ModelFormatError, match="pickle"):
        open_safetensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\nsize 1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "fetch it again"),
    ],
)
def test_what_stands_in_for_a_file_is_named(tmp_path: Path, head: bytes, message: str) -> None:
    for read in (open_safetensors, read_object):
        (tmp_path / "a").write_bytes(head)
        with pytest.raises(ModelFormatError, match=message):
            read(tmp_path / "a")


def indexed(folder: Path, weight_map: Any) -> None:
    written(folder / "one.safetensors", {"a": A}, DATA[:24])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    indexed(tmp_path, {"a": "one.safetensors"})
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.tensors.keys() == {"a"}


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../one.safetensors"}, "found file '../one"),
        ({"a": "/etc/passwd"}, "found file"),
        ({"a": "one\0.safetensors"}, "found file"),
        (
            {"a": "two.safetensors"},
            "names 1 files, of which 1 are not there, two",
        ),
        ({"b": "one.safetensors"}, "the index says 'None'"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, "incomplete"),
        ({}, "found no tensors"),
        (5, "found no tensors"),
    ],
)
def test_other_shards_are_refused(tmp_path: Path, weight_map: Any, message: str) -> None:
    indexed(tmp_path, weight_map)
    with pytest.raises(EdgeInferError, match=message):
        open_checkpoint(tmp_path)


def test_pickles_are_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(UnsupportedModelError, match="save_pretrained"):
        open_checkpoint(tmp_path)
