"""Models that read give rows of tokens, or an embedding or scores of each sequence."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import (
    InvalidParameterError,
    MissingTensorError,
    ModelFormatError,
    UnsupportedModelError,
)
from edgeinfer.kernels.backend import Batch
from edgeinfer.kernels.reference.backend import BACKEND
from edgeinfer.program.program import Pooling, Program
from tests.arch import tiny
from tests.kernels.kl import limits_for

Floats = npt.NDArray[np.float32]
LONG, SHORT = 23, 9
TOKENS = np.random.default_rng(1).integers(0, tiny.N_VOCAB, LONG + SHORT).astype(np.int32)
LAST = (LONG - 1, LONG + SHORT - 1)


def llama(arrays: dict[str, Any] | None = None, **keys: Any) -> tuple[dict[str, Any], Any]:
    metadata, own = tiny.llama(bias=False, rope_freqs=False, **keys)
    return metadata, own | (arrays or {})


def build(path: Path, model: tuple[dict[str, Any], Any], **more: Any) -> Program:
    with tiny.open_model(path, *model) as file:
        return build_program(file.metadata, file.tensors, n_ctx=64, **more)


def read(
    path: Path,
    model: tuple[dict[str, Any], Any],
    *,
    pooling: Pooling | None = None,
    wanted: Any = LAST,
) -> Floats:
    """Run two sequences in one step."""
    with tiny.open_model(path, *model) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64, pooling=pooling)
        executable = BACKEND.compile(program, file.tensors, limits_for(128))
        batch = Batch(
            tokens=TOKENS,
            positions=np.r_[:LONG, :SHORT].astype(np.int32),
            sequences=np.repeat(np.arange(2, dtype=np.int32), (LONG, SHORT)),
            page_tables=np.array([[0], [1]], np.int32),
            wanted=np.array(wanted, np.int32),
        )
        found = executable.run(batch)
        assert found.shape[1] == program.n_out == executable.n_out
        return found.copy()


def test_rows_of_tokens_are_what_logits_are_made_of(tmp_path: Path) -> None:
    model = llama()
    logits = read(tmp_path, model, wanted=range(len(TOKENS)))
    rows = read(tmp_path, model, pooling="none", wanted=range(len(TOKENS)))
    np.testing.assert_allclose(rows @ model[1]["output.weight"].T, logits, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_a_sequence_is_pooled_from_its_own_rows(
    tmp_path: Path, kind: Literal["mean", "cls", "last"], causal: bool
) -> None:
    model = llama(pooling_type=0, attention__causal=causal)
    rows = read(tmp_path, model, wanted=range(len(TOKENS)))
    each = (rows[:LONG], rows[LONG:])
    take = {"mean": lambda x: x.mean(axis=0), "cls": lambda x: x[0], "last": lambda x: x[-1]}
    found = read(tmp_path, model, pooling=kind)
    np.testing.assert_allclose(found, [take[kind](x) for x in each], atol=1e-6)


def test_the_last_token_of_a_causal_model_needs_no_whole_sequences(tmp_path: Path) -> None:
    assert not build(tmp_path, llama(pooling_type=3)).takes_whole_sequences
    assert build(tmp_path, llama(pooling_type=3, attention__causal=False)).takes_whole_sequences
    assert build(tmp_path, llama(pooling_type=1)).takes_whole_sequences
    assert build(tmp_path, llama()).pooling is None


def test_a_full_mask_shows_what_follows(tmp_path: Path) -> None:
    ahead, behind = (llama(pooling_type=2, attention__causal=value) for value in (False, True))
    assert np.abs(read(tmp_path, ahead) - read(tmp_path, behind)).max() > 0.1


def head(n_labels: int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    shapes = {"output.weight": (n_labels, 80), **shapes}
    return tiny.random_arrays({f"cls.{name}": shape for name, shape in shapes.items()})


def test_scores_are_those_of_the_head(tmp_path: Path) -> None:
    arrays = head(3, weight=(80, 80), bias=(80,)) | head(3, **{"output.bias": (3,)})
    found = read(tmp_path, llama(arrays, pooling_type=4))
    pooled = read(tmp_path, llama(), pooling="last")
    inner = np.tanh(pooled @ arrays["cls.weight"].T + arrays["cls.bias"])
    expected = inner @ arrays["cls.output.weight"].T + arrays["cls.output.bias"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    first = read(tmp_path, llama(arrays, pooling_type=4, classifier__pooling_type=2))
    assert np.abs(found - first).max() > 0.1


def test_a_model_that_gives_scores_can_be_read_for_embeddings(tmp_path: Path) -> None:
    arrays = head(3, weight=(80, 80), bias=(80,))
    found = read(tmp_path, llama(arrays, pooling_type=4), pooling="mean")
    assert (found == read(tmp_path, llama(), pooling="mean")).all()


def test_yes_and_no_are_shares_of_one(tmp_path: Path) -> None:
    arrays = head(2)
    raw = read(tmp_path, llama(arrays, pooling_type=4))
    found = read(tmp_path, llama(arrays, pooling_type=4, classifier__output_labels=["yes", "no"]))
    np.testing.assert_allclose(found, np.exp(raw) / np.exp(raw).sum(1, keepdims=True), atol=1e-6)


def test_matrices_follow_the_pooling(tmp_path: Path) -> None:
    arrays = tiny.random_arrays({"dense_2.weight": (50, 80), "dense_3.weight": (20, 50)})
    found = read(tmp_path, llama(arrays, pooling_type=1))
    pooled = read(tmp_path, llama(pooling_type=1))
    expected = pooled @ arrays["dense_2.weight"].T @ arrays["dense_3.weight"].T
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"llama\.pooling_type"):
        build(tmp_path, llama(pooling_type=5))
    with pytest.raises(ModelFormatError, match=r"llama\.classifier\.pooling_type"):
        build(tmp_path, llama(head(1), pooling_type=4, classifier__pooling_type=4))
    with pytest.raises(MissingTensorError, match=r"'cls\.weight' and 'cls\.output\.weight'"):
        build(tmp_path, llama(pooling_type=4))
    with pytest.raises(UnsupportedModelError, match=r"llama\.attention\.causal"):
        build(tmp_path, llama(attention__causal=False))
    with pytest.raises(InvalidParameterError, match="pooling"):
        build(tmp_path, llama(), pooling="first")
