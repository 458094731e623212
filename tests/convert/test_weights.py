"""Rows of tensors to be written are those of the checkpoint, reordered, stacked and unpacked."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.convert import families
from edgeinfer.convert.config import Config
from edgeinfer.convert.naming import _unpacked
from edgeinfer.convert.safetensors import Stored
from edgeinfer.convert.weights import (
    Weights,
    changed,
    mxfp4,
    part,
    reordered,
    reshaped,
    stacked,
    stored,
    transposed,
)
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor

RNG = np.random.default_rng(3)
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
NONE = Config("X", {}, Metadata({}))


def kept(name: str, dtype: str, array: npt.NDArray[Any]) -> Stored:
    """Return a tensor of a checkpoint that is in memory."""
    raw = array.tobytes()

    def read(at: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        assert 0 <= at <= at + n_bytes <= len(raw)
        return np.frombuffer(raw, np.uint8)[at : at + n_bytes]

    return Stored(name, dtype, array.shape, read)


def of(*shape: int) -> tuple[npt.NDArray[np.float32], Weights]:
    array = RNG.standard_normal(shape).astype(np.float32)
    return array, stored(kept("x", "F32", array))


def all_of(weights: Weights, step: int = 3) -> npt.NDArray[np.float32]:
    """Read a few rows at a time, as the writer does."""
    n = weights.n_rows
    parts = [weights.rows(first, min(first + step, n)) for first in range(0, n, step)]
    return np.concatenate(parts).reshape(weights.shape)


def test_each_change_is_numpys() -> None:
    a, x = of(7, 5)
    b, y = of(7, 5)
    v, z = of(7)
    order = [3, 1, 1, 6]
    assert (all_of(reordered(x, order)) == a[order]).all()
    assert (all_of(reordered(z, order)) == v[order]).all()
    assert (all_of(transposed(x)) == a.T).all()
    assert (all_of(reshaped(x, 5, 7)) == a.reshape(5, 7)).all()
    assert (all_of(stacked([x, y])) == np.stack([a, b])).all()
    assert (all_of(stacked([z, z])) == np.stack([v, v])).all()
    assert (all_of(part(stacked([x, y]), 1)) == b).all()
    assert (all_of(part(x, 2)) == a[2]).all()
    assert (all_of(changed(changed(x, np.abs), lambda values: values + 1)) == np.abs(a) + 1).all()
    far = [90, 91, 3, 4, 5, 40, 0]
    c, w = of(100, 3)
    assert (reordered(w, far).rows(0, 7) == c[far]).all()
    assert (reordered(stacked([x, y]), [13, 0, 7]).rows(0, 3) == [b[6], a[0], b[0]]).all()


def test_bfloat16_is_the_upper_half_of_a_float() -> None:
    array = RNG.standard_normal((3, 4)).astype(np.float32)
    bits = (array.view(np.uint32) >> 16).astype(np.uint16)
    assert (
        all_of(stored(kept("x", "BF16", bits))) == (bits.astype(np.uint32) << 16).view("f4")
    ).all()


def packed(*shape: int) -> tuple[npt.NDArray[np.float32], Stored, Stored]:
    """Return values, blocks and scales of a tensor as gpt-oss has it."""
    blocks = RNG.integers(0, 256, (*shape, 16), np.uint8)
    scales = RNG.integers(120, 132, shape, np.uint8)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*shape, 32)
    values = np.where(codes > 7, -1, 1) * CODES[codes & 7] * np.exp2(scales - 127.0)[..., None]
    values = values.reshape(*shape[:-1], -1).astype(np.float32)
    return values, kept("x_blocks", "U8", blocks), kept("x_scales", "U8", scales)


def decoded(weights: Weights) -> npt.NDArray[np.float32]:
    raw = weights.take(np.arange(weights.n_rows)).reshape(-1)
    return decode(Tensor("x", weights.shape, FORMATS["MXFP4"], raw))


def test_blocks_of_mxfp4_keep_their_values() -> None:
    values, blocks, scales = packed(3, 10, 2)
    assert (decoded(mxfp4(blocks, scales)) == values).all()


def test_gates_of_blocks_are_those_of_matrices() -> None:
    """gpt-oss comes in blocks along the input, and with the input first."""
    values, blocks, scales = packed(3, 10, 2)
    whole = stored(kept("x", "F32", np.ascontiguousarray(values.swapaxes(1, 2))))
    matrices = families._gate_up(whole, NONE)
    for name, found in families._gate_up(mxfp4(blocks, scales), NONE).items():
        assert (decoded(found) == all_of(matrices[name])).all()
    assert (all_of(matrices["ffn_up_exps"]) == values[:, 1::2]).all()
    assert (all_of(families._input_last(whole, NONE)) == values).all()


@pytest.mark.parametrize("change", [{"dtype": "I8"}, {"shape": (3, 10, 2, 8)}])
def test_blocks_without_a_scale_each_are_refused(change: dict[str, object]) -> None:
    _, blocks, scales = packed(3, 10, 2)
    with pytest.raises(ModelFormatError, match="x_blocks"):
        _unpacked("x_blocks", {"x_blocks": replace(blocks, **change), "x_scales": scales}, NONE)  # type: ignore[arg-type]
