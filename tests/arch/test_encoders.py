"""Encoders are read from files as other writers make them; what is wrong with one is said."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import (
    EdgeInferError,
    InvalidParameterError,
    MissingTensorError,
    ModelFormatError,
    UnsupportedModelError,
)
from edgeinfer.kernels.backend import Backend
from edgeinfer.kernels.native.backend import BACKEND as NATIVE
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program.ops import Embed
from edgeinfer.program.program import Program
from tests.arch import tiny
from tests.kernels.kl import limits_for, one_sequence

N_EMBD, N_FF, N_HEADS, N_LAYERS, N_POSITIONS = 48, 72, 4, 4, 32
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, tiny.N_VOCAB, 23)]
Made = tuple[dict[str, Any], tiny.Arrays]


def encoder(arch: str, shapes: dict[str, tuple[int, ...]], **keys: Any) -> Made:
    """Return metadata and weights; the shapes named blk.* are those of each layer."""
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": N_LAYERS,
        f"{arch}.context_length": N_POSITIONS,
        f"{arch}.embedding_length": N_EMBD,
        f"{arch}.feed_forward_length": N_FF,
        f"{arch}.attention.head_count": N_HEADS,
        f"{arch}.attention.layer_norm_epsilon": 1e-5,
        f"{arch}.attention.causal": False,
    }
    every = {"token_embd.weight": (tiny.N_VOCAB, N_EMBD), "token_embd_norm.weight": (N_EMBD,)}
    blk = {name: shape for name, shape in shapes.items() if name.startswith("blk.")}
    every |= {name: shape for name, shape in shapes.items() if name not in blk}
    for il in range(N_LAYERS):
        every |= {name.replace("blk.", f"blk.{il}."): shape for name, shape in blk.items()}
    return metadata | tiny.prefixed(arch, keys), tiny.random_arrays(every)


def bert(**keys: Any) -> Made:
    square, norm = (N_EMBD, N_EMBD), (N_EMBD,)
    shapes = {
        "position_embd.weight": (N_POSITIONS, N_EMBD),
        "token_types.weight": (2, N_EMBD),
        **{f"blk.attn_{part}.weight": square for part in ("q", "k", "v", "output")},
        **{f"blk.attn_{part}.bias": norm for part in ("q", "k", "v")},
        "blk.attn_output_norm.weight": norm,
        "blk.layer_output_norm.weight": norm,
        "blk.ffn_up.weight": (N_FF, N_EMBD),
        "blk.ffn_down.weight": (N_EMBD, N_FF),
    }
    return encoder("bert", shapes, **keys)


def modern_bert(**keys: Any) -> Made:
    norm = (N_EMBD,)
    shapes = {
        "output_norm.weight": norm,
        "blk.attn_norm.weight": norm,
        "blk.ffn_norm.weight": norm,
        "blk.attn_qkv.weight": (3 * N_EMBD, N_EMBD),
        "blk.attn_output.weight": (N_EMBD, N_EMBD),
        "blk.ffn_up.weight": (2 * N_FF, N_EMBD),
        "blk.ffn_down.weight": (N_EMBD, N_FF),
    }
    metadata, arrays = encoder("modern-bert", shapes, attention__sliding_window=8, **keys)
    del arrays["blk.0.attn_norm.weight"]
    return metadata, arrays


def build(path: Path, made: Made, n_ctx: int = N_POSITIONS) -> Program:
    with tiny.open_model(path, *made) as file:
        return build_program(file.metadata, file.tensors, n_ctx=n_ctx)


def read(path: Path, made: Made, backend: Backend = REFERENCE) -> Any:
    with tiny.open_model(path, *made) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=N_POSITIONS)
        executable = backend.compile(program, file.tensors, limits_for(N_POSITIONS))
        wanted = np.arange(0 if program.pooling == "none" else len(TOKENS) - 1, len(TOKENS))
        return executable.run(one_sequence(TOKENS, 0, wanted)).copy()


def test_a_file_that_says_nothing_gives_rows_of_tokens(tmp_path: Path) -> None:
    program = build(tmp_path, bert(attention__causal=None))
    assert (program.pooling, program.takes_whole_sequences) == ("none", True)


def test_queries_keys_and_values_may_be_one_matrix(tmp_path: Path) -> None:
    metadata, arrays = bert()
    fused = dict(arrays)
    for il in range(N_LAYERS):
        for end in ("weight", "bias"):
            parts = [fused.pop(f"blk.{il}.attn_{part}.{end}") for part in "qkv"]
            fused[f"blk.{il}.attn_qkv.{end}"] = np.concatenate(parts)
    expected = read(tmp_path, (metadata, arrays))
    np.testing.assert_allclose(read(tmp_path, (metadata, fused)), expected, atol=1e-5)


@pytest.mark.parametrize("pattern", [3, [False, True, True, False]])
def test_layers_without_a_window_come_first(tmp_path: Path, pattern: Any) -> None:
    program = build(tmp_path, modern_bert(attention__sliding_window_pattern=pattern))
    reaches = [op.reach for op in program.attentions()]
    assert reaches == [(None, None), (4, 4), (4, 4), (None, None)]
    by_default = build(tmp_path, modern_bert())
    assert [op.reach for op in by_default.attentions()] == reaches


def head(n_labels: int) -> tiny.Arrays:
    shapes = {"cls.weight": (N_EMBD, N_EMBD), "cls.output.weight": (n_labels, N_EMBD)}
    return tiny.random_arrays(shapes)


@pytest.mark.parametrize("backend", [NATIVE, REFERENCE])
def test_a_matrix_of_one_row_may_be_a_vector(tmp_path: Path, backend: Backend) -> None:
    """llama.cpp's quantizer drops axes of one."""
    if reason := backend.why_unavailable():
        pytest.skip(reason)
    metadata, arrays = bert(pooling_type=4)
    arrays |= head(1)
    arrays["token_types.weight"] = arrays["token_types.weight"][:1]
    expected = read(tmp_path, (metadata, arrays), backend)
    for name in ("cls.output.weight", "token_types.weight"):
        arrays[name] = arrays[name].reshape(-1)
    assert (read(tmp_path, (metadata, arrays), backend) == expected).all()
    assert expected.shape == (1, 1)


@pytest.mark.parametrize(
    ("keys", "separator", "ids"),
    [
        ({"pooling_type": 4}, 5, "segments"),
        ({"pooling_type": 4}, None, "row"),
        ({"pooling_type": 2}, 5, "row"),
    ],
)
def test_only_pairs_to_be_scored_have_two_types(
    tmp_path: Path, keys: Any, separator: int | None, ids: str
) -> None:
    metadata, arrays = bert(**keys)
    metadata["tokenizer.ggml.seperator_token_id"] = separator
    arrays |= head(1) if keys["pooling_type"] == 4 else {}
    looks = [op for op in build(tmp_path, (metadata, arrays)).ops if isinstance(op, Embed)]
    types = next(op for op in looks if op.table.name == "token_types.weight")
    assert (types.ids, types.separator) == (ids, separator if ids == "segments" else 0)


def test_positions_end_with_their_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="n_ctx: found 33"):
        build(tmp_path, bert(), n_ctx=33)
    metadata, arrays = bert(context_length=64)
    with pytest.raises(MissingTensorError, match="position_embd"):
        build(tmp_path, (metadata, arrays))


HOSTILE: list[tuple[Any, dict[str, Any], type[EdgeInferError], str]] = [
    (bert, {"pooling_type": -1}, ModelFormatError, r"bert\.pooling_type"),
    (bert, {"attention__causal": "no"}, ModelFormatError, r"bert\.attention\.causal"),
    (bert, {"attention__layer_norm_epsilon": None}, ModelFormatError, "layer_norm_epsilon"),
    (modern_bert, {"hidden_activation": "relu"}, UnsupportedModelError, "'relu'"),
    (modern_bert, {"attention__sliding_window": 1}, ModelFormatError, "sliding_window: found 1"),
    (modern_bert, {"attention__sliding_window": None}, ModelFormatError, "sliding_window"),
    (modern_bert, {"attention__sliding_window": -2}, ModelFormatError, "sliding_window"),
]


@pytest.mark.parametrize(("make", "keys", "kind", "said"), HOSTILE)
def test_hostile_keys_are_typed_errors(
    tmp_path: Path, make: Any, keys: dict[str, Any], kind: type[EdgeInferError], said: str
) -> None:
    metadata, arrays = make()
    metadata |= tiny.prefixed(metadata["general.architecture"], keys)
    with pytest.raises(kind, match=said):
        build(tmp_path, (metadata, arrays))


def test_a_separator_that_is_no_token_is_refused(tmp_path: Path) -> None:
    metadata, arrays = bert(pooling_type=4)
    metadata["tokenizer.ggml.seperator_token_id"] = tiny.N_VOCAB
    with pytest.raises(ModelFormatError, match="seperator_token_id"):
        build(tmp_path, (metadata, arrays | head(1)))
