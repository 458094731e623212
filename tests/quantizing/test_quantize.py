"""A model file in, a smaller one out: the values, the choices, and nothing else touched."""

import os

import numpy as np
import pytest

from edgeinfer import quantize
from edgeinfer.errors import (
    BackendError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    ResourceError,
    UnsupportedModelError,
)
from edgeinfer.kernels.native import isa
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.decode import decode
from edgeinfer.quant.imatrix import Imatrix, Sums
from edgeinfer.writer import workplace
from edgeinfer.writer.imatrix import write_imatrix
from tests.arch import tiny
from tests.gguf_writer import write_gguf

# 320 is five blocks of 64, ten of 32 and one of 256 and a quarter.
METADATA, ARRAYS = tiny.llama(n_embd=320, n_ff=256, bias=False)


@pytest.fixture
def source(tmp_path):
    return write_gguf(tmp_path / "in.gguf", METADATA, ARRAYS)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out.gguf"


def formats(path):
    with open_gguf(path) as file:
        return {name: tensor.format.name for name, tensor in file.tensors.items()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_matrices_are_rounded_and_all_else_is_copied(source, target):
    report = quantize(source, target, "f16")
    assert report.files == (target,)
    assert report.n_bytes == target.stat().st_size
    with open_gguf(target) as file:
        assert [*file.tensors] == [*ARRAYS]
        for name, array in ARRAYS.items():
            rounded = array if array.ndim == 1 else array.astype(np.float16).astype(np.float32)
            assert np.array_equal(decode(file.tensors[name]), rounded), name
        assert file.metadata["general.file_type"] == 1
        assert file.metadata["general.quantization_version"] == 2
        assert {key: file.metadata[key] for key in METADATA} == pytest.approx(METADATA)


def test_bf16_rounds_to_nearest_even(source, target):
    quantize(source, target, "BF16")
    with open_gguf(target) as file:
        for name, array in ARRAYS.items():
            if array.ndim > 1:
                found = decode(file.tensors[name])
                assert np.all(np.abs(found - array) <= np.abs(array) * 2.0**-8)
                bits = array.view(np.uint32)
                down = (bits & np.uint32(0xFFFF0000)).view(np.float32)
                assert np.mean(found == down) == pytest.approx(0.5, abs=0.1)


def test_threads_and_pieces_do_not_change_a_byte(source, target, tmp_path, monkeypatch):
    quantize(source, target, "F16", n_threads=1)
    monkeypatch.setattr("edgeinfer.quantizing.conversion.PIECE_VALUES", 700)
    quantize(source, tmp_path / "b.gguf", "F16", n_threads=3)
    assert (tmp_path / "b.gguf").read_bytes() == target.read_bytes()


def test_a_dry_run_tells_the_size_and_writes_nothing(source, target, tmp_path):
    report = quantize(source, target, "F16", dry_run=True)
    assert names(tmp_path) == ["in.gguf"]
    quantize(source, target, "F16")
    assert report.n_bytes == target.stat().st_size
    assert sum(n for n, _ in report.bytes_by_format().values()) == len(ARRAYS)


def test_progress_ends_at_all_bytes(source, target):
    calls = []
    quantize(source, target, "F16", progress=lambda stage, done, total: calls.append((done, total)))
    assert calls[-1] == (sum(a.nbytes for a in ARRAYS.values()),) * 2
    assert calls == sorted(calls)


def test_the_callers_exceptions_hold_before_the_recipe(source, target):
    quantize(
        source,
        target,
        "F16",
        tensor_types={r"blk\.0\.attn_.*": "f32", "attn_q": "bf16"},
        output_type="F32",
        embedding_type="BF16",
    )
    found = formats(target)
    assert found["blk.0.attn_q.weight"] == "F32"
    assert found["blk.1.attn_q.weight"] == "BF16"
    assert found["output.weight"] == "F32"
    assert found["token_embd.weight"] == "BF16"
    assert found["blk.1.ffn_up.weight"] == "F16"
    assert found["blk.0.attn_norm.weight"] == "F32"


def test_the_output_can_be_left_as_it_is(source, target):
    quantize(source, target, "F16", leave_output=True)
    assert formats(target)["output.weight"] == "F32"


def test_a_set_is_written_and_read(source, target, tmp_path):
    report = quantize(source, target, "F16", split_max_bytes=200_000)
    assert len(report.files) > 2
    assert [path.name for path in report.files][:2] == [
        f"out-00001-of-{len(report.files):05}.gguf",
        f"out-00002-of-{len(report.files):05}.gguf",
    ]
    assert report.n_bytes == sum(path.stat().st_size for path in report.files)
    whole = quantize(report.files[0], tmp_path / "whole.gguf", "F16", allow_requantize=True)
    direct = quantize(source, tmp_path / "direct.gguf", "F16")
    assert whole.files[0].read_bytes() == direct.files[0].read_bytes()
    kept = quantize(report.files[0], tmp_path / "kept.gguf", "BF16", keep_split=True)
    assert len(kept.files) == len(report.files)
    for before, after in zip(report.files, kept.files, strict=True):
        with open(before, "rb") as a, open(after, "rb") as b:
            assert a.read(24) == b.read(24)  # magic, version, tensors and keys of each


def test_an_alignment_of_its_own_is_kept_in_every_file(tmp_path):
    source = write_gguf(tmp_path / "in.gguf", METADATA | {"general.alignment": 4096}, ARRAYS)
    report = quantize(source, tmp_path / "out.gguf", "F16", split_max_bytes=200_000)
    with open_gguf(report.files[0]) as file:
        assert {part.alignment for part in file.parts} == {4096}


def test_a_file_in_the_way_needs_leave(source, target):
    target.write_bytes(b"old")
    with pytest.raises(InvalidParameterError, match="exists"):
        quantize(source, target, "F16")
    assert target.read_bytes() == b"old"
    quantize(source, target, "F16", overwrite=True)
    assert target.read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_the_source_is_never_written(source, tmp_path, link):
    before = source.read_bytes()
    target = tmp_path / "." / "in.gguf"
    if link is not None:
        target = tmp_path / "other.gguf"
        link(source, target)
    with pytest.raises(InvalidParameterError, match="the output is the input"):
        quantize(source, target, "F16", overwrite=True)
    assert source.read_bytes() == before


def test_no_file_of_a_source_set_is_written(source, target, tmp_path):
    report = quantize(source, tmp_path / "s.gguf", "F32", split_max_bytes=400_000)
    before = [path.read_bytes() for path in report.files]
    with pytest.raises(InvalidParameterError, match="the output is the input"):
        quantize(report.files[0], report.files[1], "F16", overwrite=True)
    with pytest.raises(InvalidParameterError, match="the output is the input"):
        quantize(report.files[0], tmp_path / "s.gguf", "F16", keep_split=True, overwrite=True)
    assert [path.read_bytes() for path in report.files] == before


def test_a_link_to_an_older_file_stays_a_link(source, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old.gguf").write_bytes(b"old")
    os.symlink(tmp_path / "elsewhere" / "old.gguf", tmp_path / "link.gguf")
    quantize(source, tmp_path / "link.gguf", "F16", overwrite=True)
    assert (tmp_path / "link.gguf").is_symlink()
    assert (tmp_path / "elsewhere" / "old.gguf").read_bytes()[:4] == b"GGUF"


def test_a_source_without_one_of_its_files_is_refused(source, target, tmp_path):
    report = quantize(source, tmp_path / "s.gguf", "F32", split_max_bytes=400_000)
    report.files[1].unlink()
    with pytest.raises(ModelFormatError, match="missing, shard 2 of"):
        quantize(report.files[0], target, "F16")
    assert not target.exists()


def test_a_source_that_is_no_model_is_refused(target, tmp_path):
    with pytest.raises(ModelNotFoundError):
        quantize(tmp_path / "none.gguf", target, "F16")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelFormatError, match="not a GGUF file"):
        quantize(tmp_path / "text.gguf", target, "F16")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_is_refused(target, tmp_path, value):
    arrays = {name: array.copy() for name, array in ARRAYS.items()}
    arrays["blk.1.attn_k.weight"][7, 3] = value
    source = write_gguf(tmp_path / "in.gguf", METADATA, arrays)
    with pytest.raises(ModelFormatError, match=r"'blk.1.attn_k.weight': row 7: found NaN or inf"):
        quantize(source, target, "F16")
    assert names(tmp_path) == ["in.gguf"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_weight_that_is_copied_is_looked_at_too(target, tmp_path, value, dtype):
    weights = np.ones((16, 64), dtype)
    weights[7, 3] = value
    arrays = ARRAYS | {"blk.1.attn_k.weight": weights}
    source = write_gguf(tmp_path / "in.gguf", METADATA, arrays)
    recipe = {"<f4": "F32", "<f2": "F16"}[np.dtype(dtype).str]
    with pytest.raises(ModelFormatError, match=r"'blk.1.attn_k.weight': row 7: found NaN or inf"):
        quantize(source, target, recipe)
    assert names(tmp_path) == ["in.gguf"]


def test_divisors_of_frequencies_may_be_infinite(target, tmp_path):
    arrays = ARRAYS | {"rope_freqs.weight": np.array([1, np.inf], np.float32)}
    quantize(write_gguf(tmp_path / "in.gguf", METADATA, arrays), target, "Q8_0")


def test_a_weight_too_large_for_f16_is_refused_not_made_infinite(target, tmp_path):
    arrays = ARRAYS | {"output.weight": ARRAYS["output.weight"] * np.float32(1e6)}
    source = write_gguf(tmp_path / "in.gguf", METADATA, arrays)
    with pytest.raises(UnsupportedModelError, match=r"'output.weight': found .* make it BF16"):
        quantize(source, target, "F16")
    quantize(source, target, "F16", output_type="BF16")


def test_without_compiled_encoders_some_formats_are_refused_at_once(source, target, monkeypatch):
    monkeypatch.setattr(
        "edgeinfer.quantizing.encoding.isa.why_unavailable", lambda: "nothing was compiled"
    )
    with pytest.raises(BackendError, match="format Q6_K cannot be made here: nothing was comp"):
        quantize(source, target, "F16", tensor_types={"ffn_down": "Q6_K"})
    quantize(source, target, "Q8_0")
    assert formats(target)["blk.0.attn_q.weight"] == "Q8_0"


def test_a_source_that_changes_meanwhile_is_refused(source, target, tmp_path):
    def shrink(stage, done, total):
        os.truncate(source, 1000)

    with pytest.raises(ResourceError, match="changed on disk while it was read"):
        quantize(source, target, "F16", progress=shrink)
    assert names(tmp_path) == ["in.gguf"]


def test_what_is_written_is_read_again(source, target, monkeypatch):
    sync = workplace.PartFile.sync

    def sync_to_faulty_disk(part):
        sync(part)
        with part.path.open("rb+") as file:
            file.seek(-1, 2)
            last = file.read(1)[0]
            file.seek(-1, 2)
            file.write(bytes([last ^ 1]))

    monkeypatch.setattr(workplace.PartFile, "sync", sync_to_faulty_disk)
    with pytest.raises(ResourceError, match="reads back as"):
        quantize(source, target, "F16")
    assert not target.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "Q9"}, "recipe 'Q9': unknown .known: F32, F16"),
        ({"tensor_types": {"attn_q": "Q9"}}, "format 'Q9' is unknown"),
        ({"tensor_types": {"(": "Q8_0"}}, "not a regular expression"),
        ({"tensor_types": {"attn_norm": "F16"}}, "'attn_norm': matches no tensor"),
        ({"output_type": "IQ1_S"}, "output type: format 'IQ1_S' is unknown"),
        ({"split_max_bytes": 0}, "found 0"),
        ({"split_max_bytes": 5, "keep_split": True}, "found both"),
    ],
)
def test_a_wrong_option_is_named(source, target, options, message):
    with pytest.raises(InvalidParameterError, match=message):
        quantize(source, target, **{"recipe": "F16", **options})


def test_a_quantized_source_needs_leave(target, tmp_path):
    arrays = ARRAYS | {"blk.0.ffn_down.weight": ("Q4_0", (320, 256))}
    source = write_gguf(tmp_path / "in.gguf", METADATA, arrays)
    with pytest.raises(InvalidParameterError, match=r"'blk.0.ffn_down.weight' is quantized alre"):
        quantize(source, target, "F16")
    quantize(source, target, "F16", tensor_types={"blk.0.ffn_down": "Q4_0"})
    with open_gguf(source) as before, open_gguf(target) as after:
        name = "blk.0.ffn_down.weight"
        assert np.array_equal(before.tensors[name].data, after.tensors[name].data)
    quantize(source, target, "F32", allow_requantize=True, overwrite=True)
    with open_gguf(source) as before, open_gguf(target) as after:
        assert np.array_equal(decode(before.tensors[name]), decode(after.tensors[name]))


def test_strict_refuses_where_rows_do_not_fit(source, target):
    with pytest.raises(UnsupportedModelError, match="rows of 320 values cannot be Q4_K"):
        quantize(source, target, "Q4_K_M", strict=True)
    found = quantize(source, target, "Q4_K_M", dry_run=True).fallbacks
    assert {(t.wanted, t.format) for t in found} == {
        ("Q4_K", "Q5_0"),
        ("Q4_K", "F16"),  # attn_output: 144 columns are no blocks of 32
        ("Q6_K", "Q8_0"),
    }


def test_importance_weights_each_column_and_each_expert(target, tmp_path):
    """Half of the columns count: their error shrinks, that of the others may grow."""
    metadata, arrays = tiny.llama(n_embd=256, n_ff=256, dim=32, bias=False, n_experts=3)
    source = write_gguf(tmp_path / "in.gguf", metadata, arrays)
    sums = {}
    halves = {}
    for name, array in arrays.items():
        if array.ndim < 2 or "gate_inp" in name or name == "blk.0.attn_q.weight":
            continue
        n_matrices = array.shape[0] if array.ndim == 3 else 1
        squares = np.ones((n_matrices, array.shape[-1]))
        for i in range(n_matrices):
            squares[i, i % 2 :: 2] = 1e4
        halves[name] = squares > 1
        sums[name] = Sums(squares, np.ones(n_matrices))
    write_imatrix(tmp_path / "im.gguf", Imatrix(sums, ("text",), 7))
    quantize(source, target, "Q4_0")
    report = quantize(source, tmp_path / "w.gguf", "Q4_0", imatrix=tmp_path / "im.gguf")
    used = {t.name for t in report.tensors if t.used_importance}
    assert used == {t.name for t in report.encoded} - {"blk.0.attn_q.weight"}
    with open_gguf(target) as plain, open_gguf(tmp_path / "w.gguf") as weighted:
        for name, half in halves.items():
            rows = arrays[name].reshape(len(half), -1, half.shape[-1])
            errors = [
                np.square(decode(file.tensors[name]).reshape(rows.shape) - rows)
                for file in (plain, weighted)
            ]
            for i, columns in enumerate(half):
                before, after = (error[i][:, columns].sum() for error in errors)
                assert after < before, (name, i)
        name = "blk.0.attn_q.weight"
        assert np.array_equal(plain.tensors[name].data, weighted.tensors[name].data)
        assert weighted.metadata["quantize.imatrix.file"] == "im.gguf"
        assert weighted.metadata["quantize.imatrix.dataset"] == "text"
        assert weighted.metadata["quantize.imatrix.chunks_count"] == 7


@pytest.mark.parametrize(
    ("name", "n_columns", "message"),
    [
        ("blk.9.attn_q.weight", 320, "none of them among the"),
        ("blk.0.attn_q.weight", 321, "found importance of 321 columns .need 320."),
    ],
)
def test_importance_of_another_model_is_refused(source, target, tmp_path, name, n_columns, message):
    sums = {name: Sums(np.ones((1, n_columns)), np.ones(1))}
    write_imatrix(tmp_path / "im.gguf", Imatrix(sums))
    with pytest.raises(InvalidParameterError, match=message):
        quantize(source, target, "Q4_0", imatrix=tmp_path / "im.gguf")


@pytest.mark.skipif(isa.why_unavailable() is not None, reason="needs the compiled encoders")
@pytest.mark.parametrize("is_tied", [False, True])
def test_what_makes_logits_is_encoded_for_that(tmp_path, target, is_tied):
    metadata, arrays = tiny.llama(n_embd=512, n_ff=256, bias=False)
    if is_tied:
        del arrays["output.weight"]
    quantize(write_gguf(tmp_path / "in.gguf", metadata, arrays), target, "Q6_K", pure=True)
    from edgeinfer.kernels.native.encode import encode

    with open_gguf(target) as file:
        for name in ("token_embd.weight", "output.weight", "blk.0.attn_q.weight"):
            if name not in file.tensors:
                continue
            makes_logits = name == ("token_embd.weight" if is_tied else "output.weight")
            data, rows = file.tensors[name].data, arrays[name]
            for for_logits in (False, True):
                made = encode("Q6_K", rows, for_logits=for_logits).reshape(-1)
                assert np.array_equal(made, data) == (for_logits == makes_logits), name
