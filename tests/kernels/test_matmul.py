"""Every format's kernel at every ISA level equals the law, bit for bit."""

import numpy as np
import pytest

from edgeinfer.kernels.native import isa
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels import block_scales, law

native = pytest.importorskip("edgeinfer.kernels.native._native")
NAMES = native.ffi.string(native.lib.ei_format_names()).decode().split()


def random_rows(
    rng: np.random.Generator, name: str, n_rows: int, n_columns: int, style: str
) -> np.ndarray:
    """File rows of random bits with finite scales; `extreme` has all-ones codes and odd scales."""
    fmt = FORMATS[name]
    if name in law.FLOAT_FORMATS:
        values = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
        if style == "extreme":
            values *= np.exp2(rng.integers(-20, 8, values.shape)).astype(np.float32)
        if name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
    n_blocks = n_rows * n_columns // fmt.block_size
    blocks = rng.integers(0, 256, (n_blocks, fmt.block_bytes), dtype=np.uint8)
    if style == "extreme":
        blocks[::2] = 0xFF
        blocks[1::4] = 0x80
        block_scales.put_odd(blocks, name, rng)
    else:
        w, low = rng.standard_normal((2, n_blocks))
        block_scales.put(blocks, name, w, low)
    return blocks.reshape(n_rows, -1)


def random_x(rng: np.random.Generator, n_tokens: int, n_columns: int, style: str) -> np.ndarray:
    x = rng.standard_normal((n_tokens, n_columns)).astype(np.float32)
    if style == "extreme":
        x = np.where(rng.random(x.shape) < 0.5, np.float32(127), np.float32(-127))
        x[:, : n_columns // 2] *= np.float32(2.0**-100)
        x[0, :32] = 0
    return x


def run(level: str, name: str, rows: np.ndarray, x: np.ndarray, fine: bool = False) -> np.ndarray:
    """The C kernel's y, (n_tokens, n_rows)."""
    ffi, lib = native.ffi, native.lib
    y = np.empty((len(x), len(rows)), np.float32)
    status = lib.ei_matmul(
        level.encode(),
        NAMES.index(name),
        len(rows),
        x.shape[1],
        ffi.from_buffer("uint8_t[]", np.ascontiguousarray(rows)),
        len(x),
        ffi.from_buffer("float[]", np.ascontiguousarray(x)),
        fine,
        ffi.from_buffer("float[]", y),
    )
    assert status == lib.EI_OK
    return y


def bits(y: np.ndarray) -> np.ndarray:
    return y.view(np.uint32)


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("style", ["random", "extreme"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", isa.levels())
def test_kernel_equals_the_law(level: str, name: str, style: str, fine: bool) -> None:
    rng = np.random.default_rng([NAMES.index(name), style == "extreme"])
    for n_rows, n_tokens, n_blocks in ((1, 1, 1), (16, 3, 2), (17, 9, 1), (33, 20, 3)):
        n_columns = n_blocks * max(32, FORMATS[name].block_size)
        rows = random_rows(rng, name, n_rows, n_columns, style)
        x = random_x(rng, n_tokens, n_columns, style)
        expected = law.matmul(rows, name, x, fine)
        assert (bits(run(level, name, rows, x, fine)) == bits(expected)).all()


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", isa.levels())
def test_a_token_gets_the_same_bits_in_any_company(level: str, name: str, fine: bool) -> None:
    rng = np.random.default_rng(NAMES.index(name))
    rows = random_rows(rng, name, 40, 512, "random")
    x = random_x(rng, 19, 512, "random")
    whole = run(level, name, rows, x, fine)
    for i in range(len(x)):
        assert (bits(run(level, name, rows, x[i : i + 1], fine)) == bits(whole[i : i + 1])).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_law_is_close_to_the_exact_product(name: str) -> None:
    """The only loss is the activations' rounding to 8 bits: about 1/254 of each block's largest."""
    rng = np.random.default_rng(7)
    rows = random_rows(rng, name, 8, 1024, "random")
    x = random_x(rng, 4, 1024, "random")
    w = decode(Tensor("w", (8, 1024), FORMATS[name], rows.ravel())).astype(np.float64)
    exact = x.astype(np.float64) @ w.T
    bound = 1e-6 if name in law.FLOAT_FORMATS else 0.5 / 127 * 3.5
    scale = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
    assert (np.abs(run("scalar", name, rows, x) - exact) < bound * scale).all()


def test_formats_agree_with_python() -> None:
    """One row a format in C, one in Python, equal."""
    for i, name in enumerate(NAMES):
        fmt = FORMATS[name]
        out = np.empty(fmt.block_size, np.float32)
        block = native.ffi.from_buffer("uint8_t[]", np.zeros(fmt.block_bytes, np.uint8))
        target = native.ffi.from_buffer("float[]", out)
        assert (
            native.lib.ei_decode(b"scalar", i, block, 1, fmt.block_size, target) == native.lib.EI_OK
        )
        assert native.lib.ei_decode(b"scalar", i, block, 1, fmt.block_size + 1, target) == (
            native.lib.EI_OK if fmt.block_size == 1 else native.lib.EI_BAD_ARGUMENT
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("IQ1", "IQ2", "IQ3"))])
def test_every_point_of_a_codebook_decodes_as_numpy_does(name: str) -> None:
    """C and Python keep the codebooks apart; in random blocks each of the 2048 points turns up."""
    rng = np.random.default_rng(4)
    rows = random_rows(rng, name, 8, 256 * 256, "random")
    out = np.empty((8, 256 * 256), np.float32)
    source = native.ffi.from_buffer("uint8_t[]", rows)
    native.lib.ei_decode(
        b"scalar", NAMES.index(name), source, *out.shape, native.ffi.from_buffer("float[]", out)
    )
    expected = decode(Tensor("w", out.shape, FORMATS[name], rows.ravel()))
    assert (bits(out) == bits(expected)).all()
