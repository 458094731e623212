"""What sentence-transformers keeps beside a model goes into the file, or is refused, naming it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.convert import convert
from edgeinfer.convert.config import read_config
from edgeinfer.convert.families import family_of
from edgeinfer.errors import EdgeInferError, ModelFormatError, UnsupportedModelError
from edgeinfer.loader.gguf import open_gguf
from tests.convert.checkpoints import save_file
from tests.convert.test_convert import CONFIG, N_EMBD, N_VOCAB, arrays
from tests.convert.tokenizers import byte_level

pytest.importorskip("gguf")

N_WIDE, N_OUT = 80, 32
TYPE = "sentence_transformers.models."
MODULES = [
    {"path": "", "type": TYPE + "Transformer"},
    {"path": "1_Pooling", "type": TYPE + "Pooling"},
    {"path": "2_Dense", "type": TYPE + "Dense"},
    {"path": "3_Dense", "type": "sentence_transformers.base.modules.dense.Dense"},
    {"path": "4_Normalize", "type": TYPE + "Normalize"},
]
DENSE: dict[str, Any] = {"activation_function": "torch.nn.modules.linear.Identity", "bias": False}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that pools its last token and multiplies twice."""
    folder = tmp_path / "Tiny"
    write(folder / "config.json", CONFIG)
    write(folder / "tokenizer.json", byte_level(N_VOCAB - 4))
    write(folder / "modules.json", MODULES)
    write(folder / "1_Pooling/config.json", {"pooling_mode_lasttoken": True})
    save_file(arrays(), folder / "model.safetensors")
    for i, shape in ((2, (N_WIDE, N_EMBD)), (3, (N_OUT, N_WIDE))):
        write(folder / f"{i}_Dense/config.json", DENSE)
        dense(folder, i, np.full(shape, i, np.float32))
    return folder


def dense(folder: Path, i: int, array: np.ndarray, **more: np.ndarray) -> None:
    save_file({"linear.weight": array, **more}, folder / f"{i}_Dense/model.safetensors")


def test_pooling_and_matrices_are_in_the_file(folder: Path) -> None:
    path = convert(folder, outtype="f32").files[0]
    with open_gguf(path) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64)
        assert (program.pooling, program.n_out) == ("last", N_OUT)
        assert file.metadata["llama.dense_2_feat_out"] == N_WIDE
        assert (file.tensors["dense_3.weight"].data.view(np.float32) == 3).all()


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_has_several_spellings(folder: Path, config: Any, pooling: str) -> None:
    write(folder / "1_Pooling/config.json", config)
    with open_gguf(convert(folder).files[0]) as file:
        assert build_program(file.metadata, file.tensors, n_ctx=64).pooling == pooling


def test_a_folder_without_modules_writes_text(folder: Path) -> None:
    (folder / "modules.json").unlink()
    with open_gguf(convert(folder).files[0]) as file:
        assert "llama.pooling_type" not in file.metadata


def modules(*listed: Any) -> Callable[[Path], None]:
    return lambda folder: write(folder / "modules.json", list(listed))


def pooled(**config: Any) -> Callable[[Path], None]:
    return lambda folder: write(folder / "1_Pooling/config.json", config)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no list": (lambda folder: write(folder / "modules.json", {}), "list of objects"),
    "no objects": (modules("Transformer"), "list of objects"),
    "another module": (modules(*MODULES, {"path": "5", "type": TYPE + "LSTM"}), "'LSTM'"),
    "a third matrix": (modules(*MODULES, {"path": "2_Dense", "type": "Dense"}), "'Dense'"),
    "no pooling": (modules(MODULES[0]), "Pooling"),
    "two poolings": (modules(*MODULES[:2], MODULES[1]), "Pooling"),
    "another folder": (modules(MODULES[0], {"path": "../x", "type": "Pooling"}), "'../x'"),
    "the folder above": (modules(MODULES[0], {"path": "..", "type": "Pooling"}), r"'\.\.'"),
    "no name": (modules(MODULES[0], {"path": "a\0", "type": "Pooling"}), "path: found"),
    "the folder itself": (modules(MODULES[0], {"path": "", "type": "Pooling"}), "path: found"),
    "no path": (modules(MODULES[0], {"type": "Pooling"}), "None"),
    "the largest": (pooled(pooling_mode_max_tokens=True), "pooling_mode_max_tokens"),
    "two ways": (pooled(pooling_mode="mean+max"), "mean, max"),
    "no way": (pooled(), "found pooling ''"),
    "no prompt": (pooled(pooling_mode="mean", include_prompt=False), "include_prompt"),
    "a function": (
        lambda folder: write(folder / "2_Dense/config.json", DENSE | {"activation_function": "T"}),
        "activation_function",
    ),
    "a bias": (
        lambda folder: dense(
            folder, 2, np.ones((3, N_EMBD), np.float32), **{"linear.bias": np.ones(3, np.float32)}
        ),
        r"linear\.bias",
    ),
    "a vector": (lambda folder: dense(folder, 2, np.ones(N_EMBD, np.float32)), "a matrix"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_cannot_say_is_refused(folder: Path, name: str) -> None:
    change, said = REFUSED[name]
    change(folder)
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=said):
        convert(folder)
    assert not list(folder.glob("*.gguf"))


BERT: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 72,
    "layer_norm_eps": 1e-12,
    "norm_eps": 1e-5,
    "max_position_embeddings": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "pad_token_id": 1,
    "vocab_size": 99,
}


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("BertModel", "hidden_act", "gelu_new"),
        ("BertModel", "position_embedding_type", "relative_key"),
        ("BertModel", "is_decoder", True),
        ("RobertaModel", "max_position_embeddings", 2),
        ("NomicBertModel", "prenorm", True),
        ("NomicBertModel", "rotary_emb_fraction", 0.5),
        ("JinaBertModel", "position_embedding_type", "absolute"),
        ("ModernBertForSequenceClassification", "classifier_pooling", "max"),
        ("ModernBertModel", "local_attention", 1),
        ("BertForSequenceClassification", "id2label", {"a": "x"}),
        ("BertForSequenceClassification", "id2label", ["x"]),
        ("BertForSequenceClassification", "id2label", {}),
    ],
)
def test_other_encoders_are_refused_by_the_key(
    tmp_path: Path, architecture: str, key: str, value: Any
) -> None:
    act = "silu" if architecture.startswith("Nomic") else "gelu"
    config = BERT | {"hidden_act": act, "architectures": [architecture], key: value}
    write(tmp_path / "config.json", config)
    with pytest.raises(EdgeInferError, match=key):
        config = read_config(tmp_path)
        family_of(config).keys(config)
