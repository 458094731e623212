"""Files written are files read: by our loader, bit for bit, and by the gguf package."""

import io

import gguf
import numpy as np
import pytest

from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.strings import StringArray
from edgeinfer.quant.formats import FORMATS
from edgeinfer.writer.entries import Entry, encode, entries_of, with_entries
from edgeinfer.writer.gguf import TensorPlan, plan, write
from tests.gguf_writer import Typed, gguf_bytes, write_gguf

METADATA = {
    "general.architecture": "llama",
    "a.u8": Typed("u8", 200), "a.i8": Typed("i8", -3), "a.u16": Typed("u16", 65535),
    "a.i16": Typed("i16", -30000), "a.u32": Typed("u32", 1 << 31), "a.i32": Typed("i32", -5),
    "a.u64": Typed("u64", (1 << 64) - 1), "a.i64": Typed("i64", -(1 << 63)),
    "a.f32": Typed("f32", 0.1), "a.f64": Typed("f64", 0.1), "a.bool": True,
    "a.text": "naïve 🙂\n", "a.empty": "",
    "b.i8": Typed("i8", [1, -1]), "b.u64": Typed("u64", [1 << 63]), "b.f32": Typed("f32", [0.1]),
    "b.bool": Typed("bool", [True, False, True]), "b.none": Typed("f64", []),
    "b.texts": ["", "a", "x" * 300, "é"], "b.no_texts": Typed("str", []),
    "b.broken": Typed("str", [b"\xff\xfe", b"ok"]),
}  # fmt: skip
TENSORS = {
    "one.weight": np.arange(7, dtype=np.float32),
    "two.weight": ("Q4_K", (3, 256)),
    "three.weight": ("Q8_0", (2, 3, 64)),
}


def written(entries, tensors):
    """Return the bytes of a file with these entries and (name -> Tensor)."""
    out = io.BytesIO()
    file = plan(entries, [TensorPlan(t.name, t.shape, t.format) for t in tensors.values()])
    write(file, (t.data for t in tensors.values()), out.write)
    assert len(out.getvalue()) == file.n_bytes
    return out.getvalue()


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_what_a_file_holds_is_written_as_it_was(tmp_path, alignment):
    metadata = METADATA | ({} if alignment is None else {"general.alignment": alignment})
    source = write_gguf(tmp_path / "a.gguf", metadata, TENSORS)
    with open_gguf(source) as file:
        assert written(entries_of(file.metadata), file.tensors) == source.read_bytes()


def test_a_file_of_version_2_becomes_one_of_version_3(tmp_path):
    source = write_gguf(tmp_path / "a.gguf", METADATA, TENSORS, version=2)
    with open_gguf(source) as file:
        assert written(entries_of(file.metadata), file.tensors) == gguf_bytes(METADATA, TENSORS)


def test_the_gguf_package_reads_the_same(tmp_path):
    metadata = {key: value for key, value in METADATA.items() if key != "b.broken"}
    source = write_gguf(tmp_path / "a.gguf", metadata, TENSORS)
    with open_gguf(source) as file:
        (tmp_path / "b.gguf").write_bytes(written(entries_of(file.metadata), file.tensors))
        found = gguf.GGUFReader(tmp_path / "b.gguf")
        assert {t.name: t.data.tobytes() for t in found.tensors} == {
            name: t.data.tobytes() for name, t in file.tensors.items()
        }
    assert found.fields["a.u64"].contents() == (1 << 64) - 1
    assert found.fields["b.texts"].contents() == ["", "a", "x" * 300, "é"]
    assert found.fields["b.bool"].contents() == [True, False, True]


def test_entries_are_replaced_where_they_stand_or_added():
    entries = [Entry("a", "u32", 1), Entry("b", "u32", 2)]
    changed = with_entries(entries, [Entry("a", "u64", 3), Entry("c", "u8", 4)])
    assert [(e.key, e.type_name, e.value) for e in changed] == [
        ("a", "u64", 3), ("b", "u32", 2), ("c", "u8", 4),
    ]  # fmt: skip


def test_strings_of_ones_own_are_written_like_those_of_a_file():
    entry = Entry("k", "str[2]", StringArray.from_strings(["ab", "é"]))
    assert (
        encode(entry)[8 + 1 + 4 + 4 + 8 :] == b"\2" + bytes(7) + b"ab\2" + bytes(7) + "é".encode()
    )


def test_a_number_out_of_its_types_range_is_refused():
    with pytest.raises(OverflowError):
        encode(Entry("k", "u8", 256))


def test_data_that_is_not_the_planned_size_is_our_bug(tmp_path):
    file = plan([], [TensorPlan("a", (2, 2), FORMATS["F32"])])
    with pytest.raises(AssertionError, match="a: 20 bytes, 16 are left"):
        write(file, iter([np.zeros(20, np.uint8)]), io.BytesIO().write)
