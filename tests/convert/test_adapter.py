"""An adapter's file changes the model's file as PEFT's adapter changes the checkpoint."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.convert import convert
from edgeinfer.errors import EdgeInferError, InvalidParameterError
from edgeinfer.loader.gguf import open_gguf
from tests.convert.checkpoints import save_file
from tests.convert.test_convert import CONFIG, N_VOCAB, arrays
from tests.convert.tokenizers import byte_level

pytest.importorskip("gguf")

RANK, ALPHA = 3, 12.0
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj")
SETTINGS: dict[str, Any] = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}
Floats = npt.NDArray[np.float32]


def matrices(rank: int = RANK) -> dict[str, Floats]:
    rng, base = np.random.default_rng(8), arrays()
    found = {}
    for module in MODULES:
        n_rows, n_columns = base[f"model.layers.0.{module}.weight"].shape
        name = f"base_model.model.model.layers.0.{module}"
        found[f"{name}.lora_A.weight"] = rng.standard_normal((rank, n_columns)).astype(np.float32)
        found[f"{name}.lora_B.weight"] = rng.standard_normal((n_rows, rank)).astype(np.float32)
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return model(tmp_path / "base", arrays())


def model(folder: Path, weights: dict[str, Floats]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(N_VOCAB)))
    save_file(weights, folder / "model.safetensors")
    return folder


def adapter(folder: Path, tensors: dict[str, Floats], **settings: Any) -> Path:
    folder.mkdir()
    found = SETTINGS | settings
    kept = {key: value for key, value in found.items() if value is not ...}
    (folder / "adapter_config.json").write_text(json.dumps(kept))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def tensors_of(path: Path) -> dict[str, Floats]:
    with open_gguf(path) as file:
        return {
            name: t.data.view("<f4").reshape(t.shape).copy() for name, t in file.tensors.items()
        }


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, dict.fromkeys(MODULES, ALPHA / RANK)),
        ({"use_rslora": True}, dict.fromkeys(MODULES, ALPHA / RANK**0.5)),
        (
            {"alpha_pattern": {"q_proj": 6.0, "layers.0.mlp.down_proj": 24}},
            dict(zip(MODULES, (6 / RANK, 4, 4, 24 / RANK), strict=True)),
        ),
    ],
)
def test_base_and_adapter_are_what_was_merged(
    base: Path, tmp_path: Path, settings: dict[str, Any], scale: dict[str, float]
) -> None:
    merged, given = arrays(), matrices()
    for module in MODULES:
        a, b = (
            given[f"base_model.model.model.layers.0.{module}.lora_{part}.weight"] for part in "AB"
        )
        merged[f"model.layers.0.{module}.weight"] += np.float32(scale[module]) * b @ a
    whole = model(tmp_path / "merged", merged)
    folder = adapter(tmp_path / "Lora", given, **settings)
    result = convert(folder, tmp_path / "lora.gguf", base=base)
    parts, found, need = (
        tensors_of(path)
        for path in (
            result.files[0],
            convert(base, tmp_path / "base.gguf", outtype="f32").files[0],
            convert(whole, tmp_path / "merged.gguf", outtype="f32").files[0],
        )
    )
    with open_gguf(result.files[0]) as file:
        about = file.metadata
        kinds = (about["general.type"], about["adapter.type"], about["general.architecture"])
        assert kinds == ("adapter", "lora", "llama")
        alpha = about.number("adapter.lora.alpha")
    assert len(parts) == 2 * len(MODULES)
    for name in {name.rpartition(".lora_")[0] for name in parts}:
        found[name] += np.float32(alpha / RANK) * parts[f"{name}.lora_b"] @ parts[f"{name}.lora_a"]
    for name, values in need.items():
        assert np.abs(found[name] - values).max() < 1e-4, name


def test_the_base_may_be_named_by_the_adapter(base: Path, tmp_path: Path, capsys: Any) -> None:
    """Its config.json is enough."""
    (base / "model.safetensors").unlink()
    folder = adapter(tmp_path / "Lora", matrices(), base_model_name_or_path=str(base))
    assert main(["convert", str(folder), "--outtype", "f16"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "Lora-F16.gguf")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "LOHA"}, "'LOHA' .need LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias"),
        ({"r": 0}, "key 'r': found 0"),
        ({"r": RANK + 1}, r"need \(4, columns\)"),
        ({"r": ...}, "key 'r': missing"),
        ({"lora_alpha": ...}, "lora_alpha"),
        ({"lora_alpha": 1e30}, "lora_alpha"),
        ({"lora_alpha": -1}, "lora_alpha"),
        ({"lora_alpha": True}, "lora_alpha"),
        ({"rank_pattern": {"q_proj": "8"}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 0}}, "alpha_pattern"),
    ],
)
def test_settings_that_are_not_understood_are_refused(
    base: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    folder = adapter(tmp_path / "Lora", matrices(), **settings)
    with pytest.raises(EdgeInferError, match=message):
        convert(folder, base=base, dry_run=True)


A, B = (f"base_model.model.model.layers.0.self_attn.q_proj.lora_{part}.weight" for part in "AB")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({A: None}, "no lora_A"),
        ({B: None}, "no lora_B"),
        ({A: np.ones((48, RANK), np.float32)}, r"lora_A \(48, 3\)"),
        ({B: np.ones((47, RANK), np.float32)}, "do not belong together"),
        ({"base_model.model.lm_head.weight": np.ones((2, 2), np.float32)}, "no matrix of an"),
        (
            {
                "base_model.model.model.layers.0.gate.lora_A.weight": np.ones((3, 4), np.float32),
                "base_model.model.model.layers.0.gate.lora_B.weight": np.ones((4, 3), np.float32),
            },
            "no place for",
        ),
        (dict.fromkeys(matrices()), "without tensors"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(
    base: Path, tmp_path: Path, change: dict[str, Floats | None], message: str
) -> None:
    tensors = {name: t for name, t in (matrices() | change).items() if t is not None}
    folder = adapter(tmp_path / "Lora", tensors)
    with pytest.raises(EdgeInferError, match=message):
        convert(folder, base=base, dry_run=True)


def test_a_model_and_an_adapter_are_told_apart(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "Lora", matrices())
    with pytest.raises(EdgeInferError, match="--base"):
        convert(folder, dry_run=True)
    with pytest.raises(InvalidParameterError, match="no adapter"):
        convert(base, base=base, dry_run=True)
