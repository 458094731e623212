"""NumPy encoding: read back by decode.py, errors at most those of the gguf package's encoders."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from edgeinfer.errors import InvalidParameterError, NonFiniteError
from edgeinfer.quant.decode import decode
from edgeinfer.quant.encode import ENCODERS, encode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

FLOATS = ("F32", "F16", "BF16")
IN_GGUF = [name for name in ENCODERS if name not in (*FLOATS, "IQ4_NL")]


def decoded(name: str, encoded: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return decode(Tensor("t", shape, FORMATS[name], np.ascontiguousarray(encoded).reshape(-1)))


def rows_of(kind: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    if kind == "normal":
        return rng.standard_normal((64, 512), np.float32)
    return rng.standard_t(3, (64, 512)).astype(np.float32)


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_those_of_the_gguf_package(name):
    rows = rows_of("heavy")
    rows[0, :6] = [0.0, -0.0, 1e-8, -6e-8, 65504, 1 + 2**-11]
    want = quantize(rows, GGMLQuantizationType[name])
    assert (encode(name, rows) == want.view(np.uint8).reshape(len(rows), -1)).all()


@pytest.mark.parametrize("kind", ["normal", "heavy"])
@pytest.mark.parametrize("name", IN_GGUF)
def test_errors_are_below_those_of_the_gguf_package(name, kind):
    rows = rows_of(kind)
    reference = decoded(name, quantize(rows, GGMLQuantizationType[name]), rows.shape)
    ours = decoded(name, encode(name, rows), rows.shape)
    assert np.square(ours - rows).sum() < np.square(reference - rows).sum()


@pytest.mark.parametrize("name", [n for n in ENCODERS if n not in FLOATS])
def test_important_columns_lose_less(name):
    rows, importance = rows_of("normal"), np.ones(512, np.float32)
    importance[::4] = 100
    plain = decoded(name, encode(name, rows), rows.shape) - rows
    weighted = decoded(name, encode(name, rows, importance=importance), rows.shape) - rows
    assert np.square(weighted[:, ::4]).sum() < 0.95 * np.square(plain[:, ::4]).sum()


@pytest.mark.parametrize("name", ENCODERS)
def test_zeros_and_constants_come_back(name):
    rows = np.zeros((3, 256), np.float32)
    rows[1], rows[2] = -0.0, -0.5
    back = decoded(name, encode(name, rows), rows.shape)
    assert (back[:2] == 0).all()
    np.testing.assert_allclose(back[2], -0.5, rtol=1e-3)


@pytest.mark.parametrize(
    ("importance", "complaint"),
    [
        (np.ones(31, np.float32), r"importance: found shape \(31,\) \(need \(32,\)\)"),
        (np.full(32, -1, np.float32), "importance: found -1.0 in column 0"),
        (np.full(32, np.nan, np.float32), "importance: found nan in column 0"),
    ],
)
def test_importance_of_another_kind_is_refused(importance, complaint):
    with pytest.raises(InvalidParameterError, match=complaint):
        encode("Q4_0", np.ones((1, 32), np.float32), importance=importance)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (np.ones((1, 32)), "rows: found float64 with 2 axes"),
        (np.ones(32, np.float32), "rows: found float32 with 1 axes"),
        (np.ones((2, 64), np.float32)[:, ::2], "rows: found .* not contiguous"),
        (np.ones((1, 48), np.float32), "columns: found 48 .need a positive multiple of 32"),
        (np.ones((1, 0), np.float32), "columns: found 0"),
    ],
)
def test_rows_of_another_kind_are_refused(rows, complaint):
    with pytest.raises(InvalidParameterError, match=complaint):
        encode("Q4_0", rows)


def test_values_that_no_f16_holds_are_named_by_their_place():
    rows = np.ones((4, 64), np.float32)
    rows[2, 40] = np.nan
    with pytest.raises(NonFiniteError, match="Q8_0: row 2, column 40: found nan"):
        encode("Q8_0", rows)
    rows[2, 40] = 1e30
    with pytest.raises(InvalidParameterError, match=r"F16: row 2, column 40: found 1e\+30"):
        encode("F16", rows)
    assert (encode("BF16", rows)[2, 80:82] == np.array([0x4A, 0x71], np.uint8)).all()


def test_a_format_of_sub_blocks_is_refused_by_name():
    with pytest.raises(InvalidParameterError, match=r"format: found 'Q4_K' \(need one of F32, F16"):
        encode("Q4_K", np.ones((1, 256), np.float32))
