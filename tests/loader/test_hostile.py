"""Broken and hostile model files: each one ends in the right error, saying what is wrong."""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from edgeinfer.errors import (
    EdgeInferError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from edgeinfer.loader.gguf import open_gguf
from tests.gguf_writer import Typed, gguf_bytes, write_gguf

METADATA = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "a.flag": True,
    "a.numbers": Typed("u64", [1, 2, 3]),
    "a.strings": ["one", "two", "three"],
    "a.last": 7,
}
TENSORS = {
    "first.weight": ("Q4_K", (2, 256)),
    "second.weight": ("F32", (3, 5)),
    "third.weight": ("Q8_0", (1, 64)),
}
N_BYTES = len(gguf_bytes(METADATA, TENSORS))

# (what is put into which field, a fragment of the message)
BROKEN_FIELDS = {
    "version 0": ({"version": 0}, "header: found GGUF version 0 .need 2 or 3"),
    "version 1": ({"version": 1}, "found GGUF version 1 "),
    "version 4": ({"version": 4}, "found GGUF version 4 "),
    "big-endian": ({"version": 0x03000000}, "found a big-endian file .need little-endian"),
    "2^63 keys": ({"n_kv": 1 << 63}, f"found {1 << 63} keys .need at most"),
    "2^64-1 keys": ({"n_kv": -1}, f"found {(1 << 64) - 1} keys .need at most"),
    "keys beyond the bytes": ({"n_kv": N_BYTES // 14}, "keys .need at most .* bytes are left"),
    "one key too many": ({"n_kv": 7}, "key"),
    "2^63 tensors": ({"n_tensors": 1 << 63}, f"found {1 << 63} tensors .need at most"),
    "2^64-1 tensors": ({"n_tensors": -1}, "tensors .need at most"),
    "tensors beyond the bytes": ({"n_tensors": N_BYTES // 33}, "tensors .need at most"),
    "key of 2^64-1 bytes": ({"kv[0].key.length": -1}, "key 0 of 6: key: found a length of"),
    "key of 2^31 bytes": ({"kv[0].key.length": 1 << 31}, "found a length of 2147483648"),
    "key to past the end": ({"kv[0].key.length": N_BYTES}, "key needs .* left"),
    "empty key": ({"kv[0].key.length": 0, "kv[0].key": b""}, "found '' .need a name"),
    "key with NUL": ({"kv[0].key": b"general\0architectur"}, "without NUL"),
    "key not UTF-8": ({"kv[0].key": b"general.archite\xff\xfe\xfdur"}, "need valid UTF-8"),
    "key with a terminal's escapes": (
        {"kv[0].key": b"\x1b[31mgeneral.archite", "kv[0].type": 99},
        r"key '\\x1b\[31mgeneral.archite': value type: found 99",
    ),
    "key found twice": ({"kv[5].key": b"a.flag"}, "key 'a.flag': found twice"),
    "string of 2^64-1 bytes": (
        {"kv[0].value.length": -1},
        "key 'general.architecture': value needs 18446744073709551615 bytes",
    ),
    "string of 2^31 bytes": ({"kv[0].value.length": 1 << 31}, "value needs 2147483648 bytes"),
    "string to past the end": ({"kv[0].value.length": N_BYTES}, "value needs"),
    "string not UTF-8": ({"kv[0].value": b"llam\xe4"}, "found b'llam.xe4' .need valid UTF-8"),
    "value type 13": ({"kv[0].type": 13}, "value type: found 13 .need 0 to 12"),
    "value type 255": ({"kv[0].type": 255}, "value type: found 255"),
    "value type -1": ({"kv[0].type": -1}, "value type: found 4294967295"),
    "bool of 2": ({"kv[2].value": b"\2"}, "key 'a.flag': bool: found byte 2 .need 0 or 1"),
    "2^61 numbers": ({"kv[3].count": 1 << 61}, "key 'a.numbers': u64 value needs 1844674407"),
    "numbers that wrap": ({"kv[3].count": (1 << 61) + 1}, "u64 value needs 18446744073709551624"),
    "2^61 strings": ({"kv[4].count": 1 << 61}, f"an array of {1 << 61} strings .need at most"),
    "2^64-1 strings": ({"kv[4].count": -1}, "an array of 18446744073709551615 strings"),
    "strings to past the end": ({"kv[4].count": 60}, "key 'a.strings': string"),
    "item of 2^64-1 bytes": (
        {"kv[4].item[1].length": -1},
        "key 'a.strings': string 1: found length 18446744073709551615",
    ),
    "item of 2^31 bytes": ({"kv[4].item[2].length": 1 << 31}, "string 2: found length 2147483648"),
    "item to past the end": ({"kv[4].item[0].length": N_BYTES}, "string 0: found length"),
    "array of arrays": ({"kv[3].element_type": 9}, "array of arrays .nested arrays"),
    "array of unknown": ({"kv[3].element_type": 77}, "element type: found 77"),
    "no tensor name": ({"tensor[0].name.length": 0, "tensor[0].name": b""}, "need a name"),
    "tensor name with NUL": ({"tensor[0].name": b"first\0weight"}, "without NUL"),
    "tensor name of 65 bytes": (
        {"tensor[0].name.length": 65, "tensor[0].name": b"x" * 65},
        "tensor 0: name: found a length of 65 bytes .need at most 64",
    ),
    "tensor name of 2^63 bytes": ({"tensor[0].name.length": 1 << 63}, "found a length of"),
    "tensor found twice": (
        {"tensor[2].name.length": 12, "tensor[2].name": b"first.weight"},
        "tensor 'first.weight': found twice",
    ),
    "no dimensions": ({"tensor[0].n_dims": 0}, "found 0 dimensions .need 1 to 4"),
    "five dimensions": ({"tensor[0].n_dims": 5}, "found 5 dimensions"),
    "nine dimensions": ({"tensor[0].n_dims": 9}, "found 9 dimensions"),
    "2^32-1 dimensions": ({"tensor[0].n_dims": -1}, "found 4294967295 dimensions"),
    "dimension 0": ({"tensor[1].dim[1]": 0}, "found dimensions .5, 0. .need each at least 1"),
    "dimension -1": ({"tensor[1].dim[0]": -1}, "product < 2.63"),
    "product of 2^63": ({"tensor[0].dim[0]": 1 << 62}, "product < 2.63"),
    "product that wraps": (
        {"tensor[1].dim[0]": 1 << 33, "tensor[1].dim[1]": 1 << 33},
        "product < 2.63",
    ),
    "bytes that wrap": ({"tensor[1].dim[0]": 1 << 61}, "file truncated"),
    "row not of whole blocks": (
        {"tensor[0].dim[0]": 255},
        "tensor 'first.weight': found rows of 255 values .need a multiple of 256.* Q4_K",
    ),
    "offset not aligned": ({"tensor[1].offset": 289}, "found offset 289 .need 288"),
    "offset past the end": ({"tensor[1].offset": 1 << 40}, f"found offset {1 << 40} .need 288"),
    "offset of 2^64-32": ({"tensor[0].offset": -32}, "found offset 18446744073709551584 .need 0"),
    "tensors overlap": ({"tensor[1].offset": 0}, "tensor 'second.weight': found offset 0"),
    "hole between tensors": ({"tensor[1].offset": 320}, "found offset 320 .need 288"),
    "first tensor not at the start": ({"tensor[0].offset": 32}, "found offset 32 .need 0"),
    "larger than the file": (
        {"tensor[2].dim[1]": 2},
        r"tensor 'third.weight': its bytes end at .* file truncated\? 0.0 of 0.0 MB",
    ),
}
ALIGNMENTS = {
    "0": (0, "found 0 .need a power of two, 8 to 65536"),
    "1": (1, "found 1 "),
    "3": (3, "found 3 "),
    "48": (48, "found 48 "),
    "2^31": (1 << 31, "found 2147483648 "),
    "i32": (Typed("i32", 32), "found type i32 .need u32"),
    "u64": (Typed("u64", 32), "found type u64 .need u32"),
    "string": ("32", "found type str .need u32"),
    "array": ([32], r"found type i32.1. .need u32"),
}
UNKNOWN_TYPES = {4: "Q4_2", 31: "Q4_0_4_4", 999: "id 999", 40000: "id 40000", -1: "id 4294967295"}


def refused(path: Path, kind: type[EdgeInferError], fragment: str) -> None:
    with pytest.raises(kind, match=fragment) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert type(caught.value) is kind
    assert caught.value.exit_code == 3
    assert message.isprintable() and len(message) < 800
    assert path.name[:20] in message


def test_the_file_all_are_made_from_is_sound(tiny_gguf):
    with open_gguf(tiny_gguf(METADATA, TENSORS)) as file:
        assert list(file.metadata) == list(METADATA)
        assert list(file.tensors) == list(TENSORS)
        assert file.warnings == ()


@pytest.mark.parametrize("case", BROKEN_FIELDS)
def test_broken_field(tiny_gguf, case):
    corrupt, fragment = BROKEN_FIELDS[case]
    refused(tiny_gguf(METADATA, TENSORS, corrupt=corrupt), ModelFormatError, fragment)


@pytest.mark.parametrize("case", ALIGNMENTS)
def test_alignment_that_is_none(tiny_gguf, case):
    value, fragment = ALIGNMENTS[case]
    path = tiny_gguf({**METADATA, "general.alignment": value}, TENSORS)
    refused(path, ModelFormatError, f"key 'general.alignment': {fragment}")


@pytest.mark.parametrize("ggml_id", UNKNOWN_TYPES)
def test_unknown_tensor_type_is_named(tiny_gguf, ggml_id):
    path = tiny_gguf(METADATA, TENSORS, corrupt={"tensor[1].type": ggml_id})
    fragment = f"tensor 'second.weight': .*{UNKNOWN_TYPES[ggml_id]}"
    refused(path, UnsupportedModelError, fragment)


@pytest.mark.parametrize("depth", [1, 64, 100_000])
def test_nested_arrays_do_not_recurse(tiny_gguf, depth):
    nested = (9).to_bytes(4, "little") + (1).to_bytes(8, "little")
    path = tiny_gguf(METADATA, corrupt={"kv[4].element_type": nested * depth})
    refused(path, ModelFormatError, "key 'a.strings': found an array of arrays")


@pytest.mark.parametrize("n_bytes", range(24))
def test_file_shorter_than_a_header(tiny_gguf, tmp_path, n_bytes):
    path = tmp_path / "short.gguf"
    path.write_bytes(gguf_bytes(METADATA)[:n_bytes])
    refused(path, ModelFormatError, "empty" if n_bytes == 0 else "not a GGUF|bytes, found .* left")


def test_one_byte_short_names_the_tensor_and_both_sizes(tmp_path):
    tensors = {"a": ("F32", (250_000,)), "b": ("F32", (250_000,))}
    path = write_gguf(tmp_path / "model.gguf", {}, tensors)
    whole = path.stat().st_size
    os.truncate(path, whole - 1)
    refused(path, ModelFormatError, rf"tensor 'b': .* \(need .*{whole}\); .* 2.0 of 2.0 MB")
    os.truncate(path, whole // 2)
    refused(path, ModelFormatError, r"tensor 'a': .* file truncated\? 1.0 of 2.0 MB are here")


LOOKALIKES = {
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "looks like a Git LFS pointer, not the model; run `git lfs pull`",
    ),
    "error page": (b"\n<!DOCTYPE html><html><body>404", "an HTML page"),
    "error page in XML": (b"<?xml version='1.0'?><Error/>", "an XML page"),
    "safetensors": ((90).to_bytes(8, "little") + b'{"a":{}}', "a safetensors file"),
    "zip": (b"PK\3\4" + bytes(60), "a ZIP archive"),
    "pickle": (b"\x80\x02}q\0.", "a Python pickle"),
    "gzip": (b"\x1f\x8b\x08" + bytes(30), "gzip-compressed"),
    "old ggml": (b"tjgg" + bytes(60), "older than GGUF"),
    "JSON": (b'{"model": 1}', "JSON text"),
    "zeros": (bytes(4096), "zeros; the download or copy is unfinished"),
    "something else": (b"\x1b[2Jhello", r"found 9 bytes that begin b'.x1b.2J'"),
}


@pytest.mark.parametrize("case", LOOKALIKES)
def test_wrong_magic_says_what_it_looks_like(tmp_path, case):
    content, fragment = LOOKALIKES[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    refused(path, ModelFormatError, f"not a GGUF file: .*{fragment}")


def test_paths_that_are_no_regular_file(tmp_path):
    refused(tmp_path, ModelFormatError, "found a directory .need a regular file")
    refused(Path("/dev/zero"), ModelFormatError, "found a device .need a regular file")
    fifo = tmp_path / "fifo.gguf"
    os.mkfifo(fifo)
    refused(fifo, ModelFormatError, "found a named pipe .need a regular file")
    with socket.socket(socket.AF_UNIX) as server:
        path = tmp_path / "s"
        server.bind(str(path))
        refused(path, ModelFormatError, "a socket or device")


def test_paths_that_lead_nowhere(tmp_path):
    refused(tmp_path / "none.gguf", ModelNotFoundError, "no such file")
    link = tmp_path / "link.gguf"
    link.symlink_to(tmp_path / "gone.gguf")
    refused(link, ModelNotFoundError, "no such file")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    refused(loop, ModelNotFoundError, "not a path")
    with pytest.raises(ModelNotFoundError, match="not a path"):
        open_gguf("nul\0.gguf")
    with pytest.raises(ModelNotFoundError, match="not a path"):
        open_gguf("x" * 5000)
    with pytest.raises(ModelNotFoundError, match="not a path") as caught:
        open_gguf("\ud800.gguf")
    str(caught.value).encode()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tiny_gguf):
    path = tiny_gguf(METADATA)
    path.chmod(0)
    refused(path, ModelNotFoundError, "permission denied")


def test_permission_error_is_typed_for_root_too(tiny_gguf, monkeypatch):
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = tiny_gguf(METADATA)
    monkeypatch.setattr(os, "open", refuse)
    refused(path, ModelNotFoundError, "permission denied")


def test_hostile_counts_allocate_nothing(tmp_path):
    """A header that promises 2^17 tensors or 2^24 strings costs no more than the file holds."""
    paths = [
        write_gguf(tmp_path / f"{i}.gguf", METADATA, TENSORS, corrupt=corrupt)
        for i, corrupt in enumerate(
            ({"n_tensors": 1 << 17}, {"n_kv": 1 << 16}, {"kv[4].count": 1 << 24})
        )
    ]
    tracemalloc.start()
    try:
        for path in paths:
            refused(path, ModelFormatError, "need at most")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
