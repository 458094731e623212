"""Checkpoints of 8-bit floats become the numbers they stand for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.convert import convert
from edgeinfer.convert.fp8 import numbers
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.gguf import open_gguf
from tests.convert.checkpoints import save_file
from tests.convert.test_convert import CONFIG, N_EMBD, N_FF, N_VOCAB, arrays
from tests.convert.tokenizers import byte_level

pytest.importorskip("gguf")

NAME = "model.layers.0.mlp.up_proj.weight"
BLOCK = (32, 20)  # neither side of (72, 48) is made of whole ones


def write(folder: Path, codes: np.ndarray, more: dict[str, np.ndarray], block: Any = BLOCK) -> Path:
    how = {"quant_method": "fp8", "weight_block_size": block}
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": how}))
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(N_VOCAB - 3)))
    save_file(arrays() | {NAME: codes} | more, folder / "model.safetensors")
    return folder


def random_codes() -> np.ndarray:
    codes = np.random.default_rng(1).integers(0, 256, (N_FF, N_EMBD), np.uint8)
    codes[codes & 127 == 127] = 0
    return codes


def test_the_numbers_of_all_codes() -> None:
    found = numbers()
    for code in range(256):
        exponent, fraction = code >> 3 & 15, code & 7
        if code & 127 == 127:
            assert np.isnan(found[code])
            continue
        one = 1 + fraction / 8 if exponent else fraction / 8
        need = (-1) ** (code >> 7) * one * 2.0 ** (max(exponent, 1) - 7)
        assert found[code] == need
    assert np.nanmax(found) == 448


@pytest.mark.parametrize("suffix", ["_scale_inv", "_scale"])
@pytest.mark.parametrize("kind", ["block", "row", "column of rows", "tensor"])
def test_a_value_is_its_number_times_its_scale(tmp_path: Path, kind: str, suffix: str) -> None:
    codes, rng = random_codes(), np.random.default_rng(2)
    shapes = {"block": (3, 3), "row": (N_FF,), "column of rows": (N_FF, 1), "tensor": (1,)}
    scales = rng.uniform(0.5, 2, shapes[kind]).astype(np.float32)
    write(tmp_path, codes, {NAME + suffix: scales})
    report = convert(tmp_path, tmp_path / "out.gguf", outtype="f32")
    with open_gguf(report.files[0]) as file:
        tensor = file.tensors["blk.0.ffn_up.weight"]
        found = tensor.data.view("<f4").reshape(tensor.shape)
    for i in range(N_FF):
        for j in range(N_EMBD):
            scale = {
                "block": lambda i, j: scales[i // 32, j // 20],
                "row": lambda i, j: scales[i],
                "column of rows": lambda i, j: scales[i, 0],
                "tensor": lambda i, j: scales[0],
            }[kind](i, j)
            assert found[i, j] == numbers()[codes[i, j]] * scale


def test_scales_of_activations_are_left_out(tmp_path: Path) -> None:
    one = np.ones(1, np.float32)
    module = NAME.removesuffix(".weight")
    keys = "model.layers.0.self_attn.k_proj.weight"
    more = {NAME + "_scale": one, module + ".input_scale": one, keys + "_scale": one}
    more |= {keys: np.zeros(arrays()[keys].shape, np.uint8)}
    write(tmp_path, random_codes(), more | {"model.layers.0.self_attn.k_scale": one})
    assert convert(tmp_path, dry_run=True).n_bytes > 0
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone, random_codes(), {NAME + "_scale": one, "model.norm.input_scale": one})
    with pytest.raises(UnsupportedModelError, match=r"no place for: 'model\.norm\.input_scale'"):
        convert(alone, dry_run=True)


@pytest.mark.parametrize(
    ("more", "block", "message"),
    [
        ({}, BLOCK, "without scales"),
        ({NAME + "_scale_inv": np.ones((3, 2), np.float32)}, BLOCK, r"scales of shape \(3, 2\)"),
        ({NAME + "_scale_inv": np.ones((3, 3), np.float32)}, [32], "weight_block_size"),
        ({NAME + "_scale_inv": np.ones((3, 3), np.float32)}, [0, 20], "weight_block_size"),
    ],
)
def test_scales_that_do_not_suit_are_refused(
    tmp_path: Path, more: dict[str, np.ndarray], block: Any, message: str
) -> None:
    write(tmp_path, random_codes(), more, block)
    with pytest.raises(ModelFormatError, match=message):
        convert(tmp_path, dry_run=True)
