"""Typed questions about metadata: right answers, or errors that name key, found and allowed."""

import numpy as np
import pytest

from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray
from tests.gguf_writer import Typed

VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.eps": 1e-5,
    "llama.nan": float("nan"),
    "llama.inf": float("inf"),
    "llama.heads": np.array([1, 2, 3, 4], np.int32),
    "llama.windows": np.array([True, False, True, False]),
    "llama.factors": np.array([0.5, 1.5], np.float32),
    "flag": True,
    "name": "n" * 100,
    "strings": StringArray.from_strings(["a", "b"]),
}


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(VALUES, where="m.gguf")


def test_mapping_is_raw_and_ordered(metadata):
    assert list(metadata) == list(VALUES)
    assert len(metadata) == len(VALUES)
    assert metadata["llama.block_count"] == metadata[".block_count"] == 4
    assert "flag" in metadata and ".block_count" in metadata and ".none" not in metadata
    assert metadata.get("none") is None
    assert metadata.arch == "llama"


def test_typed_answers(metadata):
    assert metadata.integer(".block_count", least=1, most=4) == 4
    assert metadata.number(".eps", above=0) == 1e-5
    assert metadata.number(".block_count") == 4.0
    assert metadata.text("name") == "n" * 100
    assert metadata.flag("flag") is True
    assert metadata.integers(".heads").tolist() == [1, 2, 3, 4]
    assert metadata.numbers(".factors").tolist() == [0.5, 1.5]
    assert metadata.flags(".windows").tolist() == [True, False, True, False]
    assert metadata.strings("strings").tolist() == ["a", "b"]


def test_defaults_are_returned_as_given(metadata):
    for ask in (
        metadata.integer, metadata.number, metadata.text, metadata.flag,
        metadata.integers, metadata.numbers, metadata.flags, metadata.strings,
    ):  # fmt: skip
        for default in (None, -5, "x"):
            assert ask("none", default) is default
            assert ask(".none", default) is default
    assert metadata.per_layer(".none", 3, None) is None


def test_missing_key_is_named_in_full(metadata):
    for ask in (metadata.integer, metadata.text, metadata.strings, metadata.numbers):
        with pytest.raises(ModelFormatError, match=r"^m.gguf: key 'llama.none': missing"):
            ask(".none")
    with pytest.raises(ModelFormatError, match=r"^m.gguf: key 'llama.none': missing"):
        metadata.per_layer(".none", 3)


def test_missing_architecture_is_named():
    with pytest.raises(ModelFormatError, match=r"key 'general.architecture': missing"):
        Metadata({}).integer(".block_count")


WRONG_TYPES = [
    ("integer", ".eps", "found the float 1e-05 .need an integer"),
    ("integer", "flag", "found the bool True .need an integer"),
    ("integer", "general.architecture", "found the string 'llama' .need an integer"),
    ("integer", ".heads", "found an array of 4 int32 values .need an integer"),
    ("integer", "strings", "found an array of 2 strings .need an integer"),
    ("number", "flag", "found the bool True .need a number"),
    ("number", "name", r"found the string 'n{60}\.\.\.' .need a number"),
    ("number", ".nan", "found nan .need a finite number"),
    ("number", ".inf", "found inf .need a finite number"),
    ("text", ".block_count", "found the int 4 .need a string"),
    ("flag", ".block_count", "found the int 4 .need a bool"),
    ("integers", ".factors", "found an array of 2 float32 values .need an array of integers"),
    ("integers", ".windows", "found an array of 4 bool values .need an array of integers"),
    ("integers", ".block_count", "found the int 4 .need an array of integers"),
    ("numbers", ".heads", "found an array of 4 int32 values .need an array of floats"),
    ("flags", ".heads", "found an array of 4 int32 values .need an array of bools"),
    ("strings", "name", "found the string .* .need an array of strings"),
    ("strings", ".heads", "found an array .* .need an array of strings"),
]


@pytest.mark.parametrize(("method", "key", "fragment"), WRONG_TYPES)
def test_wrong_type_names_found_and_need(metadata, method, key, fragment):
    full = key.replace(".", "llama.", 1) if key.startswith(".") else key
    for arguments in ((key,), (key, None)):
        with pytest.raises(ModelFormatError, match=f"^m.gguf: key '{full}': {fragment}"):
            getattr(metadata, method)(*arguments)


def test_ranges_are_named(metadata):
    with pytest.raises(ModelFormatError, match=r"found 4 \(need 5 to 9\)"):
        metadata.integer(".block_count", least=5, most=9)
    with pytest.raises(ModelFormatError, match=r"found 4 \(need at least 5\)"):
        metadata.integer(".block_count", least=5)
    with pytest.raises(ModelFormatError, match=r"found 4 \(need at most 3\)"):
        metadata.integer(".block_count", most=3)
    with pytest.raises(ModelFormatError, match=r"found 1e-05 \(need more than 1e-05\)"):
        metadata.number(".eps", above=1e-5)
    with pytest.raises(ModelFormatError, match=r"found 1e-05 \(need at least 1\)"):
        metadata.number(".eps", least=1)


def test_per_layer_takes_one_for_all_or_one_for_each(metadata):
    assert metadata.per_layer(".block_count", 3) == (4, 4, 4)
    assert metadata.per_layer(".heads", 4, least=1, most=4) == (1, 2, 3, 4)
    assert metadata.per_layer(".windows", 4) == (1, 0, 1, 0)
    with pytest.raises(ModelFormatError, match=r"'llama.heads': found 4 values .need 5, one a"):
        metadata.per_layer(".heads", 5)
    with pytest.raises(ModelFormatError, match=r"found 4 values .need 3, one a layer"):
        metadata.per_layer(".heads", 3)
    with pytest.raises(ModelFormatError, match=r"found 1 .need 2 to 4"):
        metadata.per_layer(".heads", 4, least=2, most=4)
    with pytest.raises(ModelFormatError, match=r"need an integer or an array of integers"):
        metadata.per_layer(".factors", 2)


def test_a_hostile_architecture_stays_printable_in_messages():
    hostile = Metadata({"general.architecture": "\x1b[2J" + "a" * 1000})
    with pytest.raises(ModelFormatError, match="missing") as caught:
        hostile.integer(".block_count")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


def test_type_names_are_the_files(tiny_gguf):
    path = tiny_gguf({"a": Typed("u16", 1), "b": ["x", "y"], "c": Typed("f64", [1.0])})
    with open_gguf(path) as file:
        assert [file.metadata.type_name(key) for key in "abc"] == ["u16", "str[2]", "f64[1]"]
        with pytest.raises(
            ModelFormatError, match=r"tiny.gguf: key 'a': found 1 .need a string|int"
        ):
            file.metadata.text("a")
    assert Metadata(VALUES).type_name("flag") == ""


def test_arrays_of_a_file_are_read_only(tiny_gguf):
    with open_gguf(tiny_gguf({"a": [1, 2, 3], "b": [True]})) as file:
        for key in "ab":
            array = file.metadata[key]
            assert isinstance(array, np.ndarray)
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
