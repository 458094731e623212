"""Checkpoints that are quantized are read, or refused by the name of the method."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.convert import convert
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from tests.convert.checkpoints import save_file
from tests.convert.test_convert import CONFIG, N_EMBD, N_FF, N_VOCAB, arrays
from tests.convert.tokenizers import byte_level

pytest.importorskip("gguf")

UP = "model.layers.0.mlp.up_proj"
PACKED = {
    "gptq": {
        ".qweight": np.zeros((N_EMBD // 8, N_FF), np.int32),
        ".qzeros": np.zeros((1, N_FF // 8), np.int32),
        ".scales": np.zeros((1, N_FF), np.float16),
    },
    "awq": {".qweight": np.zeros((N_EMBD, N_FF // 8), np.int32)},
    "bitsandbytes": {".weight": np.zeros((N_FF * N_EMBD // 2, 1), "V1")},
    "compressed-tensors": {".weight": np.zeros((N_FF, N_EMBD), np.int8)},
    "modelopt": {".weight": np.zeros((N_FF, N_EMBD // 2), "V1")},
}


def write(folder: Path, how: Any, more: dict[str, np.ndarray]) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": how}))
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(N_VOCAB - 3)))
    tensors = arrays()
    if more:
        del tensors[UP + ".weight"]
    save_file(
        tensors | {UP + name: array for name, array in more.items()}, folder / "x.safetensors"
    )
    return folder


@pytest.mark.parametrize("method", PACKED)
def test_packed_integers_are_refused_by_their_method(tmp_path: Path, method: str) -> None:
    write(tmp_path, {"quant_method": method, "bits": 4}, PACKED[method])
    need = rf"quantization_config\.quant_method': found '{method}', and tensor .*need weights of 16"
    with pytest.raises(UnsupportedModelError, match=need):
        convert(tmp_path, dry_run=True)


@pytest.mark.parametrize("how", [None, {"quant_method": "bitsandbytes", "load_in_4bit": True}])
def test_a_method_over_plain_floats_changes_nothing(tmp_path: Path, how: Any) -> None:
    assert convert(write(tmp_path, how, {}), dry_run=True).n_bytes > 0


@pytest.mark.parametrize("how", ["gptq", {"quant_method": 4}])
def test_what_is_no_method_is_refused(tmp_path: Path, how: Any) -> None:
    with pytest.raises(ModelFormatError, match="quantization_config"):
        convert(write(tmp_path, how, {}), dry_run=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int32])
@pytest.mark.parametrize("how", [None, {"quant_method": "mxfp4"}])
def test_integers_are_no_weights_whatever_is_said(tmp_path: Path, how: Any, dtype: Any) -> None:
    write(tmp_path, how, {".weight": np.ones((N_FF, N_EMBD), dtype)})
    need = rf"up_proj\.weight': found I{8 * np.dtype(dtype).itemsize}, integers without scales"
    with pytest.raises(UnsupportedModelError, match=need):
        convert(tmp_path, dry_run=True)
