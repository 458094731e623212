"""Split sets: all shards or a clear error, never part of a model."""

import numpy as np
import pytest

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.gguf import open_gguf
from tests.gguf_writer import Typed, write_gguf


def values(i: int) -> np.ndarray:
    return np.full((2, 4), i, np.float32)


def shard_metadata(number: int, count: int, n_tensors: int) -> dict:
    return {
        "split.no": Typed("u16", number),
        "split.count": Typed("u16", count),
        "split.tensors.count": Typed("i32", n_tensors),
    }


@pytest.fixture
def split_set(tmp_path):
    """Write three shards: the first with the metadata and no tensors, then two and one tensors."""
    tensors = [{}, {"t0": values(0), "t1": values(1)}, {"t2": values(2)}]
    paths = []
    for i in range(3):
        metadata = shard_metadata(i, 3, 3)
        if i == 0:
            metadata |= {"general.architecture": "llama", "general.name": "Tiny"}
        path = tmp_path / f"my-model-0000{i + 1}-of-00003.gguf"
        paths.append(write_gguf(path, metadata, tensors[i]))
    return paths


def rewrite(path, number, **changes):
    metadata = shard_metadata(number, 3, 3)
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    write_gguf(path, metadata, {"t2": values(2)})


def test_first_shard_opens_the_set(split_set):
    with open_gguf(split_set[0]) as file:
        assert file.path == split_set[0]
        assert [part.path for part in file.parts] == split_set
        assert file.n_bytes == sum(path.stat().st_size for path in split_set)
        assert list(file.tensors) == ["t0", "t1", "t2"]
        for i, tensor in enumerate(file.tensors.values()):
            assert tensor.data.tobytes() == values(i).tobytes()
        assert file.metadata.text("general.name") == "Tiny"
        file.check_unchanged()


def test_other_shard_names_the_first(split_set):
    with pytest.raises(ModelFormatError, match=r"found shard 2 of 3 .*; open .*-00001-of-00003"):
        open_gguf(split_set[1])


@pytest.mark.parametrize("gone", [1, 2])
def test_missing_shard_is_named(split_set, gone):
    split_set[gone].unlink()
    match = f"{split_set[gone].name}: missing, shard {gone + 1} of 3"
    with pytest.raises(ModelFormatError, match=match):
        open_gguf(split_set[0])


@pytest.mark.parametrize(
    "name", ["model.gguf", "m-00001-of-00004.gguf", "m-00002-of-00003.gguf", "m-1-of-3.gguf"]
)
def test_renamed_shard_says_what_name_it_needs(split_set, name):
    renamed = split_set[0].rename(split_set[0].with_name(name))
    with pytest.raises(
        ModelFormatError, match=r"under another name .need NAME-00001-of-00003.gguf"
    ):
        open_gguf(renamed)


MIXED = {
    "number": ({"split__no": Typed("u16", 1)}, "key 'split.no': found 1 .need 2"),
    "count": ({"split__count": Typed("u16", 4)}, "key 'split.count': found 4 .need 3"),
    "tensors": ({"split__tensors__count": Typed("i32", 9)}, "two models are mixed"),
    "architecture": ({"general__architecture": "gemma3"}, "two models are mixed"),
    "name": ({"general__name": "Other"}, "found 'Other', the first shard has 'Tiny'"),
}


@pytest.mark.parametrize("case", MIXED)
def test_shard_of_another_set_is_refused(split_set, case):
    changes, fragment = MIXED[case]
    rewrite(split_set[2], 2, **changes)
    with pytest.raises(ModelFormatError, match=f"00003-of-00003.gguf: .*{fragment}"):
        open_gguf(split_set[0])


def test_shard_without_split_keys_is_refused(split_set):
    write_gguf(split_set[2], {}, {"t2": values(2)})
    with pytest.raises(ModelFormatError, match=r"key 'split.no': missing"):
        open_gguf(split_set[0])


def test_tensor_in_two_shards_is_refused(split_set):
    write_gguf(split_set[2], shard_metadata(2, 3, 3), {"t1": values(1)})
    with pytest.raises(ModelFormatError, match="tensor 't1': also in an earlier shard"):
        open_gguf(split_set[0])


def test_wrong_total_is_refused(split_set):
    write_gguf(split_set[2], shard_metadata(2, 3, 3), {"t2": values(2), "t3": values(3)})
    with pytest.raises(ModelFormatError, match=r"split.tensors.count.: found 4 .* .need 3"):
        open_gguf(split_set[0])


@pytest.mark.parametrize("value", [Typed("i32", -1), 1 << 31, "3", [3]])
def test_hostile_count_is_refused(tmp_path, value):
    path = write_gguf(tmp_path / "m-00001-of-00003.gguf", {"split.count": value})
    with pytest.raises(ModelFormatError, match=r"key 'split.count': found"):
        open_gguf(path)


def test_set_of_one_is_a_whole_file(tmp_path):
    path = write_gguf(tmp_path / "any.gguf", shard_metadata(0, 1, 1), {"t0": values(0)})
    with open_gguf(path) as file:
        assert list(file.tensors) == ["t0"]
