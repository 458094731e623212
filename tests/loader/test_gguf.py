"""Sound files open as what they are: both versions, split sets, odd paths, real models."""

import gc
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderField

from edgeinfer.errors import ModelClosedError, ModelFormatError, ResourceError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.strings import StringArray
from tests.gguf_writer import Typed, gguf_bytes, write_gguf

METADATA = {
    "general.architecture": "llama",
    "n.u8": Typed("u8", 255), "n.i8": Typed("i8", -128), "n.u16": Typed("u16", 65535),
    "n.i16": Typed("i16", -32768), "n.u32": Typed("u32", 2**32 - 1), "n.i32": Typed("i32", -1),
    "n.u64": Typed("u64", 2**64 - 1), "n.i64": Typed("i64", -(2**63)),
    "n.f32": Typed("f32", 0.5), "n.f64": Typed("f64", 0.1),
    "b.true": True, "b.false": False, "s.empty": "", "s.text": "naïve ▁😀",
    "a.f32": [0.5, -1.0], "a.bool": [True, False], "a.str": ["a", "", "ü"], "a.u8": b"".join([]),
    "a.i64": Typed("i64", [-1, 2]), "a.none": Typed("i32", []), "a.no_strings": Typed("str", []),
}  # fmt: skip
TENSORS = {
    "vector": np.arange(5, dtype=np.float32),
    "matrix": np.arange(6, dtype=np.float16).reshape(2, 3),
    "quantized": ("Q4_K", (3, 512)),
    "four.axes": ("Q8_0", (2, 3, 1, 32)),
}


def as_python(value: object) -> object:
    if isinstance(value, np.ndarray | StringArray):
        return value.tolist()
    return value


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_and_tensor_reads_back(tiny_gguf, version):
    with open_gguf(tiny_gguf(METADATA, TENSORS, version=version)) as file:
        assert file.version == version
        assert file.alignment == 32
        expected = {
            key: as_python(value.value if isinstance(value, Typed) else value)
            for key, value in METADATA.items()
        }
        assert {key: as_python(value) for key, value in file.metadata.items()} == {
            **expected,
            "a.u8": "",
        }
        assert {key: type(value) for key, value in file.metadata.items() if key[1] == "."} == {
            key: type(value.value) if isinstance(value, Typed) else type(value)
            for key, value in METADATA.items()
            if key[1] == "." and key[0] != "a"
        } | {
            "a.f32": np.ndarray, "a.bool": np.ndarray, "a.str": StringArray, "a.u8": str,
            "a.i64": np.ndarray, "a.none": np.ndarray, "a.no_strings": StringArray,
        }  # fmt: skip
        assert [tensor.shape for tensor in file.tensors.values()] == [
            (5,),
            (2, 3),
            (3, 512),
            (2, 3, 1, 32),
        ]
        assert file.tensors["matrix"].data.tobytes() == TENSORS["matrix"].tobytes()
        assert file.tensors["quantized"].format.name == "Q4_K"
        for name, tensor in file.tensors.items():
            assert (tensor.name, len(tensor.data)) == (name, tensor.n_bytes)
            assert not tensor.data.flags.writeable


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment_of_the_file_is_used(tiny_gguf, alignment):
    with open_gguf(tiny_gguf({"general.alignment": alignment}, TENSORS)) as file:
        assert file.alignment == alignment
        assert file.parts[0].data_start % alignment == 0
        assert file.tensors["vector"].data.tobytes() == TENSORS["vector"].tobytes()


def test_the_last_tensors_padding_may_be_missing(tmp_path):
    raw = gguf_bytes({}, {"a": ("F32", (3,))})
    path = tmp_path / "a.gguf"
    path.write_bytes(raw[: len(raw) - 20])
    with open_gguf(path) as file:
        assert file.tensors["a"].n_bytes == 12
        assert file.warnings == ()


def test_trailing_bytes_are_a_warning(tiny_gguf):
    with open_gguf(tiny_gguf(METADATA, TENSORS, trailing=b"x" * 5)) as file:
        assert len(file.warnings) == 1
        assert "5 bytes after the last tensor are ignored" in file.warnings[0]


def test_file_without_keys_or_tensors(tiny_gguf):
    with open_gguf(tiny_gguf()) as file:
        assert (len(file.metadata), file.tensors) == (0, {})


def test_file_written_by_the_gguf_package(tmp_path):
    writer = GGUFWriter(tmp_path / "w.gguf", "llama")
    writer.add_token_list(["a", "b"])
    writer.add_token_scores([0.5, 1.5])
    writer.add_tensor("t", np.ones((2, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(tmp_path / "w.gguf") as file:
        assert file.metadata.arch == "llama"
        assert file.metadata.strings("tokenizer.ggml.tokens").tolist() == ["a", "b"]
        assert file.tensors["t"].shape == (2, 8)


NAMES = ["with space.gguf", "😀 ñ.gguf", os.fsdecode(b"raw \xff\xfe.gguf"), "new\nline.gguf"]


@pytest.mark.parametrize("name", NAMES)
def test_odd_paths_load_and_print(tiny_gguf, name):
    path = tiny_gguf(METADATA, name=name, trailing=b"x")
    for given in (path, str(path), os.fsencode(path)):
        with open_gguf(given) as file:
            assert file.path == path
            assert file.warnings[0].isprintable()
            file.warnings[0].encode()


def test_very_long_path_loads(tmp_path):
    folder = tmp_path
    while len(str(folder)) < 3800:
        folder = folder / ("d" * 240)
    folder.mkdir(parents=True)
    with open_gguf(write_gguf(folder / "m.gguf", METADATA)) as file:
        assert file.metadata.arch == "llama"


def test_offsets_beyond_4_gb(tmp_path):
    """A sparse file: two tensors of 2.5 GB, the second after the first 32 bits."""
    big = 5 << 29
    fields = {"tensor[0].dim[0]": big, "tensor[1].dim[0]": big, "tensor[1].offset": big}
    tensors = {"a": ("I8", (32,)), "b": ("I8", (32,))}
    path = tmp_path / "sparse.gguf"
    raw = gguf_bytes({}, tensors, corrupt=fields)[:-64]
    path.write_bytes(raw)
    os.truncate(path, len(raw) + 2 * big)
    with open(path, "r+b") as stream:
        stream.seek(len(raw) + big)
        stream.write(b"here")
    with open_gguf(path) as file:
        assert file.tensors["b"].data[:4].tobytes() == b"here"
        assert file.n_bytes == len(raw) + 2 * big


def test_views_outlive_close_and_file_object(tiny_gguf):
    file = open_gguf(tiny_gguf(METADATA, TENSORS))
    tensor, strings = file.tensors["vector"], file.metadata.strings("a.str")
    numbers = file.metadata["a.i64"]
    file.close()
    file.close()
    for attribute in ("metadata", "tensors"):
        with pytest.raises(ModelClosedError, match="the file is closed"):
            getattr(file, attribute)
    del file
    gc.collect()
    assert tensor.data.tobytes() == TENSORS["vector"].tobytes()
    assert strings.tolist() == ["a", "", "ü"]
    assert as_python(numbers) == [-1, 2]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_map_goes_with_the_last_view(tiny_gguf):
    path = tiny_gguf(METADATA, TENSORS, name="mapped-here.gguf")

    def is_mapped() -> bool:
        return path.name in Path("/proc/self/maps").read_text()

    with open_gguf(path) as file:
        view = file.tensors["vector"].data[1:]
        assert is_mapped()
    assert is_mapped()
    del view
    gc.collect()
    assert not is_mapped()


def test_changes_on_disk_are_noticed(tiny_gguf, tmp_path):
    path = tiny_gguf(METADATA, TENSORS)
    copy = tmp_path / "copy.gguf"
    shutil.copy2(path, copy)
    with open_gguf(path) as file:
        file.check_unchanged()
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        for check in (file.check_contents, file.check_unchanged):
            with pytest.raises(ResourceError, match="changed on disk") as caught:
                check()
        assert caught.value.exit_code == 4
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        file.check_unchanged()
        os.replace(copy, path)
        file.check_contents()  # what is mapped is still there
        with pytest.raises(ResourceError, match="changed on disk"):
            file.check_unchanged()
        path.unlink()
        file.check_contents()
        with pytest.raises(ResourceError, match="is gone since it was opened"):
            file.check_unchanged()
    with open_gguf(tiny_gguf(METADATA, TENSORS)) as file:
        os.truncate(file.path, 100)
        with pytest.raises(ResourceError, match=r"found 100 bytes .opened with"):
            file.check_unchanged()


def test_read_errors_are_resource_errors(tiny_gguf, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    path = tiny_gguf(METADATA)
    monkeypatch.setattr("edgeinfer.loader.mapped.MappedFile", fail)
    with pytest.raises(ResourceError, match=r"tiny.gguf: cannot read or map .*Input/output error"):
        open_gguf(path)


@pytest.fixture
def second_reader(monkeypatch):
    """Return the gguf package's reader, sped up threefold.

    It makes a million small views: as memmaps they are slow, and the collector runs among them.
    """
    memmap = np.memmap
    monkeypatch.setattr(np, "memmap", lambda path, mode: np.asarray(memmap(path, mode=mode)))
    gc.disable()
    yield GGUFReader
    gc.enable()


def their_value(field: ReaderField) -> object:
    """Return a field's value; strings as bytes, without the detour of `contents()`."""
    if field.types[-1] != GGUFValueType.STRING:
        return field.contents()
    raw = [field.parts[i].tobytes() for i in field.data]
    return raw if field.types[0] == GGUFValueType.ARRAY else raw[0].decode()


@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
def test_real_models_are_read_as_the_gguf_package_reads_them(model, request, second_reader):
    path = request.getfixturevalue(model)
    theirs = second_reader(path)
    with open_gguf(path) as ours:
        fields = {name: f for name, f in theirs.fields.items() if not name.startswith("GGUF.")}
        assert list(ours.metadata) == list(fields)
        for name, field in fields.items():
            found = ours.metadata[name]
            ours_as_theirs = (
                found.tobytes_list() if isinstance(found, StringArray) else as_python(found)
            )
            assert ours_as_theirs == their_value(field), name
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            mine = ours.tensors[tensor.name]
            assert mine.format.name == tensor.tensor_type.name
            assert mine.shape == tuple(int(dim) for dim in reversed(tensor.shape))
            assert (mine.data == tensor.data.reshape(-1).view(np.uint8)).all(), tensor.name
        assert ours.warnings == ()
        assert ours.n_bytes == path.stat().st_size


def test_tensors_of_real_model_are_views_of_one_map(smollm2_path):
    with open_gguf(smollm2_path) as file:
        addresses = [tensor.data.ctypes.data for tensor in file.tensors.values()]
        assert addresses == sorted(addresses)
        assert addresses[-1] - addresses[0] < file.n_bytes


def test_refused_file_leaves_no_descriptor(tmp_path):
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    bad = write_gguf(tmp_path / "bad.gguf", METADATA, TENSORS, corrupt={"kv[0].type": 99})
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with pytest.raises(ModelFormatError):
            open_gguf(bad)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
