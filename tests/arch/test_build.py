"""Programs are built from metadata, and everything wrong with a file is said at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import UNDERSCORED, build_program, supported
from edgeinfer.errors import (
    InvalidParameterError,
    MissingTensorError,
    ModelFormatError,
    UnsupportedModelError,
)
from edgeinfer.program import ops
from edgeinfer.program.program import Program
from edgeinfer.program.states import Conv, Delta, Ssm
from edgeinfer.program.values import Rows
from tests.arch import tiny


def build(path: Path, metadata: dict[str, Any], arrays: Any, n_ctx: int = 64) -> Program:
    with tiny.open_model(path, metadata, arrays) as file:
        return build_program(file.metadata, file.tensors, n_ctx=n_ctx)


def test_supported_lists_architectures_only() -> None:
    assert {"llama", "gemma3", "gpt-oss"} <= set(supported())
    assert "shared" not in supported()


def test_names_with_an_underscore_are_spelled_as_files_have_them() -> None:
    assert set(UNDERSCORED) <= set(supported())


@pytest.mark.parametrize(
    "arch", ["mystery", "nemotron-h", "shared", "../llama", "llama.x", "__init__", ""]
)
def test_unknown_architecture_lists_the_supported(tmp_path: Path, arch: str) -> None:
    metadata, arrays = tiny.llama()
    with pytest.raises(UnsupportedModelError, match=r"gemma3, .*gpt-oss, "):
        build(tmp_path, metadata | {"general.architecture": arch}, arrays)


@pytest.mark.parametrize(
    ("old", "other", "said"),
    [
        ("ffn_up", "ffn_up", "its tensors are those of 'llama', but it may compute otherwise"),
        (
            "blk.1.attn_k.bias",
            "blk.1.attn_lens.weight",
            "the nearest, 'llama', has no place for 'blk.*.attn_lens.weight'",
        ),
        (
            "ffn_norm",
            "ssm_sieve",
            "has no place for 'blk.*.ssm_sieve.weight' and needs 'blk.*.ffn_norm.weight', which "
            "the file lacks",
        ),
    ],
)
def test_an_unknown_architecture_is_compared_with_the_nearest(
    tmp_path: Path, old: str, other: str, said: str
) -> None:
    metadata, arrays = tiny.llama()
    renamed = {name.replace("llama", "llamb"): value for name, value in metadata.items()}
    renamed["general.architecture"] = "llamb"
    with pytest.raises(UnsupportedModelError) as caught:
        build(tmp_path, renamed, {name.replace(old, other): a for name, a in arrays.items()})
    assert said in str(caught.value)


def test_a_file_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama()
    with pytest.raises(UnsupportedModelError, match=r"found 'adapter' .need 'model'"):
        build(tmp_path, metadata | {"general.type": "adapter"}, arrays)


def test_all_faults_of_tensors_are_reported_at_once(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama()
    broken: dict[str, Any] = dict(arrays)
    del broken["blk.0.ffn_up.weight"], broken["output_norm.weight"]
    broken["blk.1.attn_k.weight"] = arrays["blk.1.attn_k.weight"][:-1]
    broken["blk.1.ffn_norm.weight"] = ("I32", (80,))
    with pytest.raises(MissingTensorError) as caught:
        build(tmp_path, metadata, broken)
    said = str(caught.value)
    assert "4 tensors" in said
    assert "'blk.0.ffn_up.weight' is missing (need (104, 80))" in said
    assert "'output_norm.weight' is missing (need (80,))" in said
    assert "'blk.1.attn_k.weight' is (47, 80) (need (48, 80))" in said
    assert "'blk.1.ffn_norm.weight' is I32 (need one of F32, F16, BF16)" in said


def test_missing_layers_are_counted_not_flooded(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama()
    with pytest.raises(MissingTensorError) as caught:
        build(tmp_path, metadata | {"llama.block_count": 900}, arrays)
    assert len(str(caught.value)) < 3000
    assert "more" in str(caught.value)


def test_tensors_nobody_reads_are_refused(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama()
    extra = arrays | {"blk.0.attn_q_norm.weight": np.ones(24, np.float32)}
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q_norm"):
        build(tmp_path, metadata, extra)
    with pytest.raises(UnsupportedModelError, match=r"'blk\.1\."):
        build(tmp_path, metadata | {"llama.block_count": 1}, arrays)


def test_experts_in_separate_tensors_are_refused(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama(n_experts=4, bias=False)
    arrays["blk.0.ffn_gate.0.weight"] = np.ones((104, 80), np.float32)
    with pytest.raises(UnsupportedModelError, match="convert the model again"):
        build(tmp_path, metadata, arrays)


def test_only_wanted_rows_reach_the_last_mlp_and_the_output(tmp_path: Path) -> None:
    program = build(tmp_path, *tiny.llama())
    late = [op for op in program.ops for v in op.writes() if v.rows is Rows.WANTED]
    names = [ref.name for op in late for ref in op.weights()]
    assert names[0] == "blk.1.attn_output.weight"
    assert "blk.1.ffn_down.weight" in names
    assert names[-1] == "output.weight"


def test_gemma3_windows_five_layers_of_six_by_default(tmp_path: Path) -> None:
    metadata, arrays = tiny.gemma3(block_count=7, attention__sliding_window_pattern=None)
    block = {name: a for name, a in arrays.items() if name.startswith("blk.0.")}
    for il in range(3, 7):
        arrays |= {name.replace("blk.0.", f"blk.{il}."): a for name, a in block.items()}
    program = build(tmp_path, metadata, arrays)
    assert [kv.window for kv in program.kvs] == [4, 4, 4, 4, 4, 0, 4]
    names = [c.name for c in program.constants]
    assert sorted(names) == ["global", "swa"]


@pytest.mark.parametrize(
    ("pattern", "windows"), [([True, True, False], [4, 4, 0]), (1, [0, 0, 0]), (3, [4, 4, 0])]
)
def test_gemma3_reads_the_window_pattern(tmp_path: Path, pattern: Any, windows: list[int]) -> None:
    metadata, arrays = tiny.gemma3(attention__sliding_window_pattern=pattern)
    assert [kv.window for kv in build(tmp_path, metadata, arrays).kvs] == windows


def test_printing_is_stable_and_names_the_weights(tmp_path: Path) -> None:
    first = build(tmp_path, *tiny.llama()).print()
    assert first == build(tmp_path, *tiny.llama()).print()
    lines = first.splitlines()
    assert lines[0].startswith("# llama: 2 layers, n_embd 80, n_vocab 97, n_ctx 64")
    assert lines[1] == "state kv 0 n_kv_heads=2 key_dim=24 value_dim=24"
    assert lines[3].split() == "x0 = embed token_embd # [T, 80]".split()
    assert "kv_store k6 v4 kv=0" in lines
    assert lines[-2:] == ["output hidden = h33", "output logits = " + lines[-3].split()[0]]


def test_longrope_table_follows_n_ctx(tmp_path: Path) -> None:
    keys = {
        "rope__scaling__type": "longrope",
        "rope__scaling__original_context_length": 32,
    }
    metadata, arrays = tiny.llama(rope_freqs=False, **keys)
    arrays["rope_factors_long.weight"] = np.full(12, 4, np.float32)
    arrays["rope_factors_short.weight"] = np.full(12, 2, np.float32)
    inv = [build(tmp_path, metadata, arrays, n_ctx).constants[0].values[0] for n_ctx in (32, 33)]
    assert inv == [0.5, 0.25]
    rope = next(op for op in build(tmp_path, metadata, arrays).ops if isinstance(op, ops.Rope))
    assert rope.mscale == pytest.approx((1 + np.log(8) / np.log(32)) ** 0.5)


@pytest.mark.parametrize("n_ctx", [0, -1, 1 << 31])
def test_n_ctx_out_of_range(tmp_path: Path, n_ctx: int) -> None:
    with pytest.raises(InvalidParameterError, match="n_ctx"):
        build(tmp_path, *tiny.llama(), n_ctx=n_ctx)


HOSTILE: dict[str, list[Any]] = {
    "block_count": [None, 0, 2**32 - 1, 1.5, "2"],
    "embedding_length": [None, 0, 2**32 - 1, 79],
    "context_length": [None, 0, 2**32 - 1],
    "feed_forward_length": [None, 0, 2**32 - 1, [104]],
    "attention.head_count": [None, 0, 2**32 - 1, 7, [6], [6, 0]],
    "attention.head_count_kv": [0, 5, 7, 2**32 - 1, -1, True],
    "attention.key_length": [0, 2**32 - 1, -24],
    "attention.value_length": [0, 2**32 - 1],
    "attention.layer_norm_rms_epsilon": [None, 0.0, -1e-5, float("nan"), float("inf"), "x"],
    "rope.freq_base": [0.0, -1.0, 1.0, float("nan"), float("inf")],
    "rope.dimension_count": [0, 23, 26, 22, 2**32 - 1],
    "rope.scaling.factor": [-1.0, 1e-45, float("nan")],
    "rope.scaling.type": ["mystery", 3],
    "attention.scale": [-1.0, float("inf")],
    "expert_count": [-1, 5000, 1.0],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values]
)
def test_hostile_hyper_parameters_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = tiny.llama()
    with pytest.raises((ModelFormatError, UnsupportedModelError)) as caught:
        build(tmp_path, metadata | {f"llama.{key}": value}, arrays)
    said = str(caught.value)
    assert f"llama.{key}" in said or isinstance(caught.value, MissingTensorError), said


@pytest.mark.parametrize("value", [0, 2, 3, 2**32 - 1, "softmax"])
def test_experts_that_are_chosen_in_another_way_are_refused(tmp_path: Path, value: Any) -> None:
    metadata, arrays = tiny.llama(n_experts=3)
    key = "llama.expert_gating_func"
    with pytest.raises(ModelFormatError, match=key):
        build(tmp_path, metadata | {key: value}, arrays)
    build(tmp_path, metadata | {key: 1}, arrays)


HOSTILE_LFM2: dict[str, list[Any]] = {
    "shortconv.l_cache": [None, 0, 1, 65, 2**32 - 1, -1, 1.5, "3"],
    "attention.head_count_kv": [[2, 0, 0], [3, 0, 0, 0], -1],
    "attention.causal": [False, 1],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE_LFM2.items() for value in values]
)
def test_hostile_lfm2_keys_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = tiny.lfm2()
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=rf"lfm2\.{key}"):
        build(tmp_path, metadata | {f"lfm2.{key}": value}, arrays)


HOSTILE_QWEN35: dict[str, list[Any]] = {
    "ssm.conv_kernel": [None, 1, 65, 2**32 - 1, -1],
    "ssm.state_size": [None, 0, 2**32 - 1],
    "ssm.group_count": [None, 0, 3, 2**32 - 1],
    "ssm.time_step_rank": [None, 0, 5, 2**32 - 1],
    "ssm.inner_size": [None, 0, 71, 2**32 - 1],
    "attention.recurrent_layers": [[True, False], [2, 0, 0], "r"],
    "nextn_predict_layers": [1, -1],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE_QWEN35.items() for value in values]
)
def test_hostile_qwen35_keys_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = tiny.qwen35()
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=r"qwen35\."):
        build(tmp_path, metadata | {f"qwen35.{key}": value}, arrays)


HOSTILE_GRANITE: dict[str, list[Any]] = {
    "ssm.state_size": [None, 0, 11, 2**32 - 1],
    "ssm.group_count": [0, 3, 1],
    "ssm.inner_size": [0, 71, 144],
    "attention.head_count_kv": [[2, 0], [3, 0, 0], 2, 0],
    "attention.scale": [-1.0],
    "logit_scale": [-1.0, float("nan")],
    "rope.scaling.finetuned": [1, "yes"],
    "expert_count": [-1, 5],
    "expert_shared_feed_forward_length": [-1],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE_GRANITE.items() for value in values]
)
def test_hostile_granitehybrid_keys_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = tiny.granitehybrid(n_experts=0 if key == "expert_count" else 3)
    with pytest.raises((ModelFormatError, UnsupportedModelError, MissingTensorError)) as caught:
        build(tmp_path, metadata | {f"granitehybrid.{key}": value}, arrays)
    assert "granitehybrid" in str(caught.value)


def test_granitehybrid_turns_unless_told_not_to(tmp_path: Path) -> None:
    metadata, arrays = tiny.granitehybrid()
    still = build(tmp_path, metadata, arrays)
    assert not any(isinstance(op, ops.Rope) for op in still.ops)
    metadata, arrays = tiny.granitehybrid(rope__scaling__finetuned=None)
    assert any(isinstance(op, ops.Rope) for op in build(tmp_path, metadata, arrays).ops)


def test_granitehybrid_keeps_keys_of_some_layers_and_two_states_of_the_others(
    tmp_path: Path,
) -> None:
    program = build(tmp_path, *tiny.granitehybrid())
    assert len(program.kvs) == 1
    ssm, conv = [Ssm(i, 4, 18, 9) for i in range(2)], [Conv(i, 108, 3) for i in range(2)]
    assert program.recurrent == (conv[0], ssm[0], conv[1], ssm[1])


def test_qwen35_attends_in_every_fourth_layer_by_default(tmp_path: Path) -> None:
    metadata, arrays = tiny.qwen35(layers="rrrar", attention__recurrent_layers=None)
    program = build(tmp_path, metadata, arrays)
    assert len(program.kvs) == 1
    assert sum(isinstance(state, Delta) for state in program.recurrent) == 4
    metadata, arrays = tiny.qwen35(
        layers="rar", attention__recurrent_layers=None, full_attention_interval=2
    )
    assert len(build(tmp_path, metadata, arrays).kvs) == 1


def test_lfm2_keeps_keys_of_some_layers_and_inputs_of_the_others(tmp_path: Path) -> None:
    program = build(tmp_path, *tiny.lfm2(layers="cacc", n_taps=4))
    assert len(program.kvs) == 1
    assert program.recurrent == tuple(Conv(i, 64, 3) for i in range(3))


@pytest.mark.parametrize("value", [-1, 1.5, "512"])
def test_hostile_gemma3_window(tmp_path: Path, value: Any) -> None:
    metadata, arrays = tiny.gemma3(attention__sliding_window=value)
    with pytest.raises(ModelFormatError, match=r"gemma3\.attention\.sliding_window"):
        build(tmp_path, metadata, arrays)


@pytest.mark.parametrize("factor", [0.0, 1e-45, -1.0, float("nan"), float("inf")])
def test_hostile_rope_factors(tmp_path: Path, factor: float) -> None:
    metadata, arrays = tiny.llama()
    arrays["rope_freqs.weight"][3] = factor
    with pytest.raises(ModelFormatError, match="rope_freqs"):
        build(tmp_path, metadata, arrays)
