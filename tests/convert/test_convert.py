"""A folder becomes a file that loads; what is not understood is refused, naming it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.convert import convert
from edgeinfer.convert.config import read_config
from edgeinfer.errors import (
    EdgeInferError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    ResourceError,
)
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.text.tokenizer import tokenizer_from_metadata
from tests.convert.checkpoints import save_file
from tests.convert.tokenizers import byte_level

pytest.importorskip("gguf")

N_EMBD, N_FF, N_VOCAB = 48, 72, 270
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": N_EMBD,
    "intermediate_size": N_FF,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": N_VOCAB,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 1}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
TEMPLATE = {"name": "a", "template": "x"}
SHAPES = {
    "model.embed_tokens": (N_VOCAB, N_EMBD),
    "model.norm": (N_EMBD,),
    "lm_head": (N_VOCAB, N_EMBD),
    "model.layers.0.input_layernorm": (N_EMBD,),
    "model.layers.0.post_attention_layernorm": (N_EMBD,),
    "model.layers.0.self_attn.q_proj": (N_EMBD, N_EMBD),
    "model.layers.0.self_attn.k_proj": (N_EMBD // 2, N_EMBD),
    "model.layers.0.self_attn.v_proj": (N_EMBD // 2, N_EMBD),
    "model.layers.0.self_attn.o_proj": (N_EMBD, N_EMBD),
    "model.layers.0.mlp.gate_proj": (N_FF, N_EMBD),
    "model.layers.0.mlp.up_proj": (N_FF, N_EMBD),
    "model.layers.0.mlp.down_proj": (N_EMBD, N_FF),
}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        f"{name}.weight": rng.standard_normal(shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "Tiny-1"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "tokenizer.json").write_text(json.dumps(byte_level(N_VOCAB - 3)))
    save_file(arrays(), made / "model.safetensors")
    return made


def changed(folder: Path, name: str, **keys: Any) -> None:
    path = folder / name
    found = json.loads(path.read_text()) if path.exists() else {}
    kept = {key: value for key, value in (found | keys).items() if value is not ...}
    path.write_text(json.dumps(kept))


def test_values_are_those_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    result = convert(folder, tmp_path / "out.gguf", outtype="f32")
    assert result.files == (tmp_path / "out.gguf",)
    weights = arrays()
    with open_gguf(result.files[0]) as file:
        assert file.metadata["general.name"] == "Tiny-1"
        found = {name: t.data.view("<f4").reshape(t.shape) for name, t in file.tensors.items()}
    assert (found["token_embd.weight"] == weights["model.embed_tokens.weight"]).all()
    q = weights["model.layers.0.self_attn.q_proj.weight"]
    halves = q.reshape(4, 2, 6, N_EMBD)
    assert (found["blk.0.attn_q.weight"].reshape(4, 6, 2, N_EMBD)[:, :, 1] == halves[:, 1]).all()


@pytest.mark.parametrize(
    ("outtype", "matrix"), [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("auto", "BF16")]
)
def test_matrices_get_the_format(folder: Path, tmp_path: Path, outtype: str, matrix: str) -> None:
    result = convert(folder, tmp_path / "out.gguf", outtype=outtype)
    formats = {tensor.name: tensor.format.name for tensor in result.tensors}
    assert formats["blk.0.ffn_down.weight"] == matrix
    assert formats["blk.0.ffn_norm.weight"] == "F32"
    assert result.files[0].stat().st_size == result.n_bytes


def test_rows_that_do_not_fit_the_format_are_reported(folder: Path) -> None:
    result = convert(folder, outtype="q8_0", dry_run=True)
    assert "blk.0.ffn_down.weight" in result.fallbacks
    assert result.files == (folder / "Tiny-1-Q8_0.gguf",)
    assert not result.files[0].exists()


def test_a_set_of_files_loads_as_one(folder: Path, tmp_path: Path) -> None:
    result = convert(folder, tmp_path / "out.gguf", outtype="f32", split_max_bytes=60_000)
    assert len(result.files) > 1
    with open_gguf(result.files[0]) as file:
        assert len(file.tensors) == len(SHAPES)


def test_the_tokenizer_is_that_of_the_folder(folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    changed(folder, "tokenizer_config.json", add_bos_token=True, bos_token="<s>", eos_token="</s>")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    path = convert(folder, tmp_path / "v.gguf", vocab_only=True).files[0]
    text = "the other thing, and 12 more: ñandú \U0001f600 </s>"
    with open_gguf(path) as file:
        assert file.tensors == {}
        tokenizer = tokenizer_from_metadata(file.metadata, where="file")
    expected = Library.from_file(str(folder / "tokenizer.json")).encode(text).ids
    assert tokenizer.encode(text, parse_special=True) == [1, *expected]
    assert tokenizer.n_vocab == N_VOCAB
    assert 2 in tokenizer.stop_ids
    assert tokenizer.chat_template is not None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"architectures": ["NoSuchForCausalLM"]}, "'NoSuchForCausalLM' .need one of"),
        ({"architectures": ...}, "key 'architectures'"),
        ({"hidden_size": ...}, "key 'hidden_size': missing"),
        ({"hidden_size": "48"}, "key 'hidden_size': found the string"),
        ({"num_hidden_layers": -1}, "key 'num_hidden_layers': found -1"),
        ({"num_key_value_heads": 3}, "divisor"),
        ({"hidden_act": "relu"}, "key 'hidden_act'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "key 'rope_type': found 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "missing"),
        ({"rope_scaling": [1]}, "key 'rope_parameters'"),
        ({"num_hidden_layers": 0}, "key 'num_hidden_layers'"),
        ({"vocab_size": 1 << 40}, "key '.vocab_size': found 1099511627776"),
        ({"vocab_size": 10**30}, "key 'vocab_size'"),
        ({"rms_norm_eps": 10**400}, "need finite numbers"),
        ({"rope_theta": 1e300}, "key '.rope.freq_base'"),
        ({"rms_norm_eps": 1e-300}, "rms_epsilon': found 1e-300"),
        ({"rope_theta": [1e6]}, "key 'rope_theta': found a list"),
        ({"num_key_value_heads": {"all": 2}}, "key 'num_key_value_heads': found a dict"),
        ({"head_dim": 1 << 31}, "key 'head_dim': found 2147483648"),
        (
            {"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 12},
            "48 rows of queries",
        ),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "key 'high_freq_factor'"),
        ({"rope_scaling": LLAMA3 | {"factor": 1e308}}, "32 bits cannot hold"),
        ({"rope_scaling": LONGROPE}, "key 'original_max_position_embeddings': found 1"),
        ({"rope_scaling": YARN | {"truncate": False}}, "key 'truncate': found false"),
        ({"rope_parameters": {"sliding_attention": {}}}, "none for full_attention"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(
    folder: Path, keys: dict[str, Any], message: str
) -> None:
    changed(folder, "config.json", **keys)
    with pytest.raises(EdgeInferError, match=message):
        convert(folder, dry_run=True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": 5}, "key 'model'"),
        ({"model": {"type": "WordLevel", "vocab": {}}}, "found 'WordLevel'"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, "token id 0"),
        ({"added_tokens": [{"id": N_VOCAB, "content": "x"}]}, f"token id {N_VOCAB}"),
        ({"added_tokens": [7]}, "added_tokens"),
        ({"added_tokens": True}, "added_tokens: found 'True'"),
        (
            {"added_tokens": [{"id": 1, "content": "\ud800"}]},
            r"ggml.tokens': found .*need Unicode",
        ),
        ({"model": {"vocab": {"a": 0}, "merges": [None]}}, "model.merges: found 'None'"),
        ({"model": {"vocab": {"a": 0}, "merges": [["a", 1.0]]}}, "model.merges: found"),
        ({"normalizer": {"type": "Lowercase"}}, "normalizer"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "pre_tokenizer"),
    ],
)
def test_a_tokenizer_that_is_not_understood_is_refused(
    folder: Path, keys: dict[str, Any], message: str
) -> None:
    changed(folder, "tokenizer.json", **keys)
    with pytest.raises(EdgeInferError, match=message):
        convert(folder, dry_run=True)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("tokenizer_config", {"chat_template": [5]}, "chat_template: found '5'"),
        ("tokenizer_config", {"chat_template": {"a": 1}}, "need name and template"),
        ("tokenizer_config", {"chat_template": [TEMPLATE, TEMPLATE]}, "found 'a' twice"),
        ("tokenizer_config", {"chat_template": "\ud800"}, "need Unicode"),
        ("generation_config", {"do_sample": True, "top_k": -3}, "top_k': found -3"),
        ("generation_config", {"do_sample": True, "temperature": 1e200}, "sampling.temp'"),
        ("generation_config", {"eos_token_id": [2, -1]}, "eot token: found id -1"),
    ],
)
def test_settings_that_are_not_understood_are_refused(
    folder: Path, name: str, keys: dict[str, Any], message: str
) -> None:
    changed(folder, f"{name}.json", **keys)
    with pytest.raises(EdgeInferError, match=message):
        convert(folder, dry_run=True)


def test_a_tensor_without_a_place_is_refused(folder: Path) -> None:
    more = {"model.layers.0.self_attn.gate.weight": np.ones((3, 3), np.float32)}
    save_file(arrays() | more, folder / "model.safetensors")
    with pytest.raises(EdgeInferError, match=r"no place for: .*self_attn\.gate\.weight"):
        convert(folder, dry_run=True)


@pytest.mark.parametrize("value", [np.nan, 70000.0])
def test_a_weight_that_the_format_cannot_hold_is_refused(
    folder: Path, tmp_path: Path, value: float
) -> None:
    broken = arrays()
    broken["model.layers.0.mlp.up_proj.weight"][3, 4] = value
    save_file(broken, folder / "model.safetensors")
    with pytest.raises(EdgeInferError, match=r"blk\.0\.ffn_up\.weight"):
        convert(folder, tmp_path / "out.gguf", outtype="f16")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_that_is_shortened_meanwhile_is_an_error(folder: Path, tmp_path: Path) -> None:
    path = folder / "model.safetensors"
    n_bytes = path.stat().st_size

    def shorten(done: int, total: int) -> None:
        os.truncate(path, n_bytes // 2)

    with pytest.raises(ResourceError, match=r"model\.safetensors: the file changed"):
        convert(folder, tmp_path / "out.gguf", n_threads=1, progress=shorten)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_tokenizer_without_merges_is_one(folder: Path, tmp_path: Path) -> None:
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    path = convert(folder, tmp_path / "v.gguf", vocab_only=True).files[0]
    with open_gguf(path) as file:
        tokenizer = tokenizer_from_metadata(file.metadata, where="file")
    assert tokenizer.decode(tokenizer.encode("the é")) == "the é"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden_size": 2 * N_EMBD, "head_dim": 12}, r"token_embd\.weight"),
        ({"intermediate_size": 1}, r"blk\.0\.ffn_gate\.weight"),
        ({"num_hidden_layers": 2}, r"blk\.1\.attn_norm\.weight"),
        ({"num_attention_heads": 2, "num_key_value_heads": 2}, r"blk\.0\.attn_k\.weight"),
    ],
)
def test_a_configuration_of_other_weights_is_refused(
    folder: Path, keys: dict[str, Any], message: str
) -> None:
    changed(folder, "config.json", **keys)
    with pytest.raises(ModelFormatError, match=message):
        convert(folder, dry_run=True)


def test_what_is_no_folder_of_a_model_is_refused_with_a_way_out(
    folder: Path, tmp_path: Path
) -> None:
    gguf, loose = tmp_path / "a.gguf", folder / "model.safetensors"
    gguf.touch()
    empty = tmp_path / "empty"
    (empty / "snapshots").mkdir(parents=True)
    for path, words in (
        (tmp_path / "none", "no such folder"),
        (gguf, "edgeinfer quantize"),
        (loose, "need the folder that has it"),
        (empty, "found no config.json"),
    ):
        with pytest.raises(ModelNotFoundError, match=words):
            convert(path)
    shutil.copytree(folder, empty / "snapshots" / "abc")
    with pytest.raises(ModelNotFoundError, match=r"did you mean .*/snapshots/abc"):
        convert(empty)


def test_a_tensor_without_values_is_refused(folder: Path) -> None:
    empty = {"model.norm.weight": np.empty((0, 3), np.float32)}
    save_file(arrays() | empty, folder / "model.safetensors")
    with pytest.raises(ModelFormatError, match=r"model\.norm\.weight'?: found shape \(0, 3\)"):
        convert(folder, dry_run=True)


def test_layers_of_a_kind_that_is_not_known_are_refused(folder: Path) -> None:
    found = {"layer_types": ["chunked_attention"], "sliding_window": 8}
    changed(folder, "config.json", architectures=["Olmo3ForCausalLM"], **found)
    with pytest.raises(ModelFormatError, match="'layer_types': found 'chunked_attention'"):
        convert(folder, dry_run=True)


def test_a_checkpoint_without_embeddings_is_refused(folder: Path) -> None:
    rest = arrays()
    del rest["model.embed_tokens.weight"]
    save_file(rest, folder / "model.safetensors")
    with pytest.raises(ModelFormatError, match=r"found no token_embd\.weight"):
        convert(folder, dry_run=True)


@pytest.mark.parametrize("differs", [False, True])
def test_tied_embeddings_are_the_output_unless_there_is_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, differs: bool
) -> None:
    monkeypatch.setattr("edgeinfer.convert.tying.READ_BYTES", 1000)
    changed(folder, "config.json", tie_word_embeddings=True)
    both = arrays()
    both["lm_head.weight"] = both["model.embed_tokens.weight"].copy()
    both["lm_head.weight"][-1, -1] += differs
    save_file(both, folder / "model.safetensors")
    result = convert(folder, dry_run=True)
    assert ("output.weight" in {tensor.name for tensor in result.tensors}) == differs
    assert ("lm_head.weight differs" in caplog.text) == differs


@pytest.mark.parametrize(
    ("name", "outer", "inner", "tied"),
    [
        ("Mistral3ForConditionalGeneration", None, False, True),
        ("Mistral3ForConditionalGeneration", False, True, False),
        ("Gemma3ForConditionalGeneration", True, False, True),
        ("Qwen3_5ForConditionalGeneration", False, True, False),
        ("Qwen3_5ForConditionalGeneration", None, True, True),  # transformers 5 would make it up
    ],
)
def test_a_class_ties_by_its_own_configuration(
    tmp_path: Path, name: str, outer: bool | None, inner: bool | None, tied: bool
) -> None:
    key = "tie_word_embeddings"
    said = {"architectures": [name], key: outer, "text_config": {key: inner}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert read_config(tmp_path).is_tied == tied


@pytest.mark.parametrize("said", [False, None])
def test_an_output_matrix_that_misses_is_not_made_up(folder: Path, said: bool | None) -> None:
    changed(folder, "config.json", tie_word_embeddings=said)
    rest = arrays()
    del rest["lm_head.weight"]
    save_file(rest, folder / "model.safetensors")
    with pytest.raises(ModelFormatError, match=r"'tie_word_embeddings'.* no lm_head"):
        convert(folder, dry_run=True)
    changed(folder, "config.json", tie_word_embeddings=True)
    assert convert(folder, dry_run=True).tensors


def test_metadata_may_not_say_how_to_compute(folder: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"llama\.block_count"):
        convert(folder, dry_run=True, metadata={"llama.block_count": 5})


def test_the_command_prints_the_path(folder: Path, tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "out.gguf"
    arguments = ["convert", str(folder), "--outfile", str(target), "--outtype", "f16"]
    assert main([*arguments, "--model-name", "Other"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["llama, F16: 12 tensors, 92.6 kB", str(target)]
    with open_gguf(target) as file:
        assert file.metadata["general.name"] == "Other"
    assert main(arguments) == 2
    assert "exists" in capsys.readouterr().err
