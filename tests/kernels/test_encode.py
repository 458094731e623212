"""The compiled encoders: bits equal on every ISA, errors as small as NumPy's or less."""

from functools import partial

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, NonFiniteError
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.encode import ENCODED, encode
from edgeinfer.quant import encode as numpy_encode
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

SCALED = [name for name in ENCODED if name not in ("F32", "F16", "BF16")]
SUPER = [name for name in SCALED if FORMATS[name].block_size == 256]
# RMS error of standard normal values, a little above what the search finds.
NORMAL_ERROR = {"Q2_K": 0.265, "Q3_K": 0.145, "Q4_K": 0.0705, "Q5_K": 0.0346, "Q6_K": 0.0174,
                "IQ4_XS": 0.0742}  # fmt: skip


def normal(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n_rows, n_columns), np.float32)


def decoded(name: str, encoded: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return decode(Tensor("t", shape, FORMATS[name], encoded.reshape(-1)))


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def hard_rows() -> np.ndarray:
    """Rows that a search could trip over: zeros, constants, outliers, lattices, the extremes."""
    rows = normal(19, 512, seed=1)
    rows[0] = 0
    rows[1] = -0.0
    rows[2] = 0.25
    rows[3] = -3
    rows[4, 100] = 60000
    rows[5] *= np.float32(1e-30)
    rows[6] = np.float32(1e-42)
    rows[7] *= np.float32(1e-7)
    rows[8] = np.where(rows[8] > 0, 65504, -65504)
    rows[9] = np.abs(rows[9])
    rows[10] = -np.abs(rows[10])
    rows[11] = np.rint(rows[11] * 3) / 8
    rows[12, :256] = 0
    rows[13] = np.arange(512) % 16 - 7
    rows[14, 32:64] *= 1000
    return rows


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("for_logits", [False, True])
def test_every_level_and_thread_count_gives_the_same_bytes(name, for_logits):
    rows, importance = hard_rows(), np.square(normal(1, 512, seed=2)[0])
    encode_them = partial(encode, name, rows, for_logits=for_logits)
    for weights in (None, importance):
        want = encode_them(importance=weights, isa_name="scalar")
        for level in isa.levels():
            for n_threads in (1, 3):
                got = encode_them(importance=weights, n_threads=n_threads, isa_name=level)
                assert (got == want).all(), (level, n_threads, weights is None)


@pytest.mark.parametrize("name", ENCODED)
def test_a_row_is_encoded_the_same_wherever_it_stands(name):
    rows = hard_rows()
    whole = encode(name, rows)
    order = np.random.default_rng(3).permutation(len(rows))
    assert (encode(name, np.ascontiguousarray(rows[order])) == whole[order]).all()
    assert encode(name, rows[:0]).shape == (0, whole.shape[1])
    for row in (4, 13):
        assert (encode(name, rows[row : row + 1]) == whole[row]).all()


@pytest.mark.parametrize("name", numpy_encode.ENCODERS)
def test_errors_are_no_larger_than_those_of_numpy(name):
    rows = hard_rows()[[2, 3, 4, 9, 10, 11, 13, 14, 15, 16, 17, 18]]
    for weights in (None, np.square(normal(1, 512, seed=2)[0])):
        w = np.ones(512) if weights is None else weights.astype(np.float64)
        mine, oracle = (
            decoded(name, made(name, rows, importance=weights), rows.shape) - rows
            for made in (encode, numpy_encode.encode)
        )
        energy = (w * np.square(rows, dtype=np.float64)).sum(axis=1)
        mine, oracle = ((w * error**2).sum(axis=1) / energy for error in (mine, oracle))
        assert (mine <= 1.1 * oracle + 1e-7).all()  # rows of halves have ties, which fall anyhow
        assert mine.sum() <= 1.01 * oracle.sum()


@pytest.mark.parametrize("name", NORMAL_ERROR)
def test_super_blocks_of_normal_values_lose_as_little_as_they_can(name):
    rows = normal(32, 1024, seed=4)
    assert rms(decoded(name, encode(name, rows), rows.shape) - rows) < NORMAL_ERROR[name]


@pytest.mark.parametrize("name", SCALED)
def test_hard_rows_come_back_within_a_step_of_the_format(name):
    rows = hard_rows()
    back = decoded(name, encode(name, rows), rows.shape)
    assert np.isfinite(back).all()
    assert (back[:2] == 0).all()
    # a part of the largest value, but for what the least f16 scale cannot tell apart
    parts = {"Q2_K": 0.45, "Q3_K": 0.18, "MXFP4": 0.18, "Q4_0": 0.15}
    bound = parts.get(name, 0.13) * np.abs(rows).max(axis=1) + 8 * 2.0**-24
    assert (np.abs(back - rows).max(axis=1) <= bound).all()


def wild_rows(seed: int) -> np.ndarray:
    """Rows whose runs of 16 values are of any kind and of any size that f16 holds, or less."""
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: rng.standard_normal(16),
        lambda: np.zeros(16),
        lambda: np.full(16, rng.standard_normal()),
        lambda: np.where(rng.random(16) < 0.05, rng.standard_normal(16), 0),
        lambda: rng.standard_cauchy(16),
        lambda: np.abs(rng.standard_normal(16)),
        lambda: rng.standard_normal(16) * 1e-3 + 1,
    ]
    runs = [kinds[rng.integers(len(kinds))]() * 2 ** rng.uniform(-45, 15) for _ in range(512)]
    return np.clip(np.concatenate(runs).reshape(16, 512), -65504, 65504).astype(np.float32)


@pytest.mark.parametrize("name", SCALED)
def test_wild_rows_come_back_finite_and_near_by_their_block(name):
    # of the largest value of a block, a fourth more than the worst of 300 such arrays
    parts = {"Q4_0": 0.16, "Q4_1": 0.155, "Q5_0": 0.075, "Q5_1": 0.07, "Q8_0": 0.006,
             "IQ4_NL": 0.185, "MXFP4": 0.315, "Q2_K": 0.63, "Q3_K": 0.245, "Q4_K": 0.14,
             "Q5_K": 0.063, "Q6_K": 0.03, "IQ4_XS": 0.13}  # fmt: skip
    for seed in range(60):
        rows = wild_rows(seed)
        back = decoded(name, encode(name, rows), rows.shape)
        shape = (-1, FORMATS[name].block_size)
        largest = np.abs(rows).reshape(shape).max(axis=1)
        errors = np.abs(back - rows).reshape(shape).max(axis=1)
        assert (errors <= parts[name] * largest + 128 * 2.0**-24).all(), seed
        importance = np.square(normal(1, 512, seed=seed)[0])
        assert np.isfinite(
            decoded(name, encode(name, rows, importance=importance), rows.shape)
        ).all()


@pytest.mark.parametrize("name", SUPER)
def test_small_blocks_lose_no_more_for_the_few_scales_f16_has(name):
    rows = normal(32, 1024, seed=4)
    error = rms(decoded(name, encode(name, rows), rows.shape) - rows)
    for size in np.exp2(np.arange(-15, -10, 0.25)):
        small = rows * np.float32(size)
        lost = rms(decoded(name, encode(name, small), rows.shape) - small) / size
        assert lost <= 1.06 * error, size


@pytest.mark.parametrize("name", SCALED)
def test_what_the_format_holds_exactly_is_found_again(name):
    rows = normal(16, 512, seed=5)
    once = decoded(name, encode(name, rows), rows.shape)
    again = decoded(name, encode(name, once), rows.shape)
    assert rms(again - once) < 0.25 * rms(once - rows)


@pytest.mark.parametrize(
    ("name", "most"), [("Q4_0", 1.01), ("Q5_0", 1.01), ("Q3_K", 1.01), ("Q6_K", 1.02)]
)
def test_large_values_shrink_less_where_no_importance_is_known(name, most):
    rows = normal(64, 512, seed=9)
    large = np.abs(rows) > 2
    alike = decoded(name, encode(name, rows, importance=np.ones(512, np.float32)), rows.shape)
    plain = decoded(name, encode(name, rows, for_logits=name == "Q6_K"), rows.shape)
    shrunk, less = ((np.abs(rows) - np.abs(back))[large].mean() for back in (alike, plain))
    assert less < 0.8 * shrunk
    assert rms(plain - rows) < most * rms(alike - rows)


@pytest.mark.parametrize("name", SCALED)
def test_important_columns_lose_less_and_the_others_more(name):
    rows, importance = normal(64, 512, seed=6), np.ones(512, np.float32)
    important = np.arange(512) % 4 == 0
    importance[important] = 100
    plain = decoded(name, encode(name, rows), rows.shape) - rows
    weighted = decoded(name, encode(name, rows, importance=importance), rows.shape) - rows
    assert rms(weighted[:, important]) < 0.98 * rms(plain[:, important])
    assert rms(weighted[:, ~important]) > rms(plain[:, ~important])


@pytest.mark.parametrize("name", SCALED)
def test_importance_matters_by_proportion_alone(name):
    rows, importance = normal(4, 512, seed=7), np.square(normal(1, 512, seed=8)[0])
    want = encode(name, rows, importance=importance)
    assert (encode(name, rows, importance=importance * np.float32(2.0**40)) == want).all()
    zeros = np.zeros(512, np.float32)
    assert (encode(name, rows, importance=zeros) == encode(name, rows)).all()


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_named_by_its_place(name, value):
    rows = normal(20, 512)
    rows[17, 300] = value
    with pytest.raises(NonFiniteError, match=r"row 17, column 300: found -?(nan|inf)"):
        encode(name, rows)


@pytest.mark.parametrize("name", [n for n in ENCODED if n not in ("F32", "BF16", "MXFP4")])
def test_a_value_too_large_for_the_format_is_named_by_its_place(name):
    rows = normal(3, 256)
    rows[1, 7] = -66000
    with pytest.raises(InvalidParameterError, match=r"row 1, column 7: found -66000.* BF16 or F32"):
        encode(name, rows)
    rows[1, 7] = -65504
    assert np.isfinite(decoded(name, encode(name, rows), rows.shape)).all()


@pytest.mark.parametrize("encode_", [encode, numpy_encode.encode])
def test_no_float_that_is_taken_becomes_infinite_in_mxfp4(encode_):
    rows = np.zeros((3, 64), np.float32)
    rows[:, 5] = 12 * 2.0**124, -12 * 2.0**124, 2.0**127
    assert (decoded("MXFP4", encode_("MXFP4", rows), rows.shape) == rows).all()
    rows[1, 5] = -3e38
    with pytest.raises(InvalidParameterError, match=r"row 1, column 5: found -3e\+38"):
        encode_("MXFP4", rows)


@pytest.mark.parametrize("encode_", [encode, numpy_encode.encode])
def test_scales_that_f16_rounds_down_by_much_clip_nothing_in_q8_0(encode_):
    largest = np.exp2(np.linspace(-17, -7, 400, dtype=np.float32))[:, np.newaxis]
    rows = normal(400, 32, seed=6)
    rows *= largest / np.abs(rows).max(axis=1, keepdims=True)
    back = decoded("Q8_0", encode_("Q8_0", rows), rows.shape)
    steps = largest / 127 + np.float32(2.0**-24)  # the first that surely holds the largest
    assert (np.abs(back - rows).max(axis=1, keepdims=True) <= 1.2 * steps).all()


@pytest.mark.parametrize("name", SCALED)
def test_small_rows_are_encoded_as_they_are_alone(name):
    rows = normal(64, 256, seed=8)
    rows *= np.exp2(np.linspace(-20, -3, 64, dtype=np.float32))[:, np.newaxis]
    rows = np.ascontiguousarray(rows[np.random.default_rng(9).permutation(64)])
    whole = encode(name, rows)
    for row in range(64):
        assert (encode(name, rows[row : row + 1]) == whole[row]).all(), row


def test_a_format_without_an_encoder_is_refused():
    with pytest.raises(InvalidParameterError, match=r"'IQ2_XS' \(need one of F32, "):
        encode("IQ2_XS", normal(1, 256))


@pytest.mark.parametrize("name", SUPER)
def test_rows_that_are_no_whole_blocks_are_refused(name):
    with pytest.raises(InvalidParameterError, match=r"found 288 .*multiple of 256"):
        encode(name, normal(1, 288))
