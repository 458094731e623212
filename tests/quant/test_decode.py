"""NumPy decoding against the gguf package's, bit for bit."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.quant.decode import DECODERS, decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

# Zero, subnormals, one, the largest, infinities, NaNs quiet and not, as f16 bits.
EXTREME_HALVES = np.array(
    [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0xFDFF],
    np.uint16,
)
# Where the f16 scales of a block stand.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_XS": [0],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
    "TQ1_0": [52], "TQ2_0": [64],
}  # fmt: skip


def random_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    fmt = FORMATS[name]
    n_bytes = int(np.prod(shape)) // fmt.block_size * fmt.block_bytes
    data = np.random.default_rng(seed).integers(0, 256, n_bytes, np.uint8)
    return Tensor("t", shape, fmt, data)


def oracle(tensor: Tensor) -> np.ndarray:
    with np.errstate(all="ignore"):
        return dequantize(tensor.row_data, GGMLQuantizationType[tensor.format.name])


def bits(values: np.ndarray) -> np.ndarray:
    assert values.dtype == np.float32
    return np.ascontiguousarray(values).view(np.uint32)


@pytest.mark.parametrize("name", DECODERS)
def test_random_bytes_decode_as_in_the_gguf_package(name):
    tensor = random_tensor(name, (33, 5 * 256))
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


@pytest.mark.parametrize("name", HALVES)
def test_extreme_scales_decode_as_in_the_gguf_package(name):
    fmt = FORMATS[name]
    tensor = random_tensor(name, (len(EXTREME_HALVES) ** 2, 512), seed=1)
    blocks = tensor.data.reshape(-1, fmt.block_bytes)
    for place, start in enumerate(HALVES[name]):
        index = np.arange(len(blocks)) // len(EXTREME_HALVES) ** place % len(EXTREME_HALVES)
        blocks[:, start : start + 2] = EXTREME_HALVES[index].view(np.uint8).reshape(-1, 2)
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


def test_every_scale_of_iq1_m_decodes_as_in_the_gguf_package():
    """Its f16 is spread over the top nibbles of four words."""
    tensor = random_tensor("IQ1_M", (len(EXTREME_HALVES), 256), seed=1)
    words = tensor.data.reshape(-1, 56)[:, 48:].view("<u2")
    words &= 0xFFF
    words |= EXTREME_HALVES[:, None] << np.array([12, 8, 4, 0], np.uint16) & 0xF000
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_every_scale_byte_decodes_as_in_the_gguf_package(name):
    tensor = random_tensor(name, (256, 64), seed=1)
    n = 1 if name == "MXFP4" else 4
    blocks = tensor.data.reshape(256, -1, FORMATS[name].block_bytes)
    blocks[:, :, :n] = np.arange(256, dtype=np.uint8)[:, None, None]
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(DECODERS)), st.integers(1, 4), st.integers(1, 3), st.data())
def test_any_bytes_decode_as_in_the_gguf_package(name, n_rows, n_blocks, data):
    fmt = FORMATS[name]
    n_bytes = n_rows * n_blocks * fmt.block_bytes
    raw = data.draw(st.binary(min_size=n_bytes, max_size=n_bytes))
    shape = (n_rows, n_blocks * fmt.block_size)
    tensor = Tensor("t", shape, fmt, np.frombuffer(raw, np.uint8))
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


def test_known_blocks_by_hand():
    """Q4_1 and Q8_0 written out, independent of any package."""
    q4_1 = np.array([0.5], "<f2").tobytes() + np.array([-1.0], "<f2").tobytes()
    q4_1 += bytes([0x10 * (15 - j) + j for j in range(16)])
    tensor = Tensor("t", (32,), FORMATS["Q4_1"], np.frombuffer(q4_1, np.uint8))
    expected = [0.5 * j - 1 for j in range(16)] + [0.5 * (15 - j) - 1 for j in range(16)]
    assert decode(tensor).tolist() == expected
    q8_0 = np.array([2.0], "<f2").tobytes() + np.arange(-128, -96, dtype=np.int8).tobytes()
    tensor = Tensor("t", (32,), FORMATS["Q8_0"], np.frombuffer(q8_0, np.uint8))
    assert decode(tensor).tolist() == [2.0 * j for j in range(-128, -96)]


@pytest.mark.parametrize("shape", [(256,), (1, 256), (3, 512), (2, 3, 256), (2, 1, 2, 256)])
def test_shape_is_the_tensors(shape):
    tensor = random_tensor("Q4_K", shape)
    found = decode(tensor)
    assert found.shape == shape
    assert (bits(found).ravel() == bits(oracle(tensor)).ravel()).all()


@pytest.mark.parametrize("name", ["F32", "Q4_1", "Q6_K"])
def test_rows_longer_than_a_chunk(name):
    tensor = random_tensor(name, (3, 1 << 17))
    assert (bits(decode(tensor)) == bits(oracle(tensor))).all()


def test_chosen_rows_are_rows_of_the_whole():
    tensor = random_tensor("Q5_K", (2, 10, 256))
    whole = bits(decode(tensor)).reshape(20, 256)
    for rows in (slice(3, 17, 5), slice(None, None, -1), [7], [19, 0, 0, 3], np.array([], int)):
        index = np.arange(20)[rows] if isinstance(rows, slice) else np.asarray(rows, int)
        found = decode(tensor, rows)
        assert found.shape == (len(index), 256)
        assert (bits(found) == whole[index]).all()


@pytest.mark.parametrize("rows", [[-1], [20], [0, 2**40], [0.5], [[1]], ["1"]])
def test_rows_out_of_range_are_refused(rows):
    with pytest.raises(InvalidParameterError, match="tensor 't': rows: found"):
        decode(random_tensor("Q8_0", (20, 32)), rows)


def test_result_is_a_copy():
    tensor = random_tensor("F32", (2, 4))
    decode(tensor)[:] = 0
    assert tensor.data.any()


@pytest.mark.parametrize("name", sorted(set(FORMATS) - set(DECODERS)))
def test_format_without_decoder_names_tensor_and_format(name):
    tensor = random_tensor(name, (1, 256))
    with pytest.raises(UnsupportedModelError, match=f"tensor 't': format {name} cannot"):
        decode(tensor)


def test_formats_that_must_decode():
    need = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ2_XXS "
    need += "IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M TQ1_0 TQ2_0 MXFP4 NVFP4"
    assert set(need.split()) <= set(DECODERS)
