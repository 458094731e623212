"""Tiny random models give the logits an eager float64 forward pass gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels.reference.backend import BACKEND
from tests.arch import tiny
from tests.arch.eager import gemma3_logits, lfm2_logits, lfm2_rows, llama_logits, qwen35_logits
from tests.arch.next_tiny import qwen3next
from tests.kernels.kl import limits_for, run_tokens

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, tiny.N_VOCAB, 23)]

LLAMAS: dict[str, dict[str, Any]] = {
    "untied, biases, rope_freqs": {},
    "tied, no biases": {"tied": True, "bias": False, "rope_freqs": False},
    "fused qkv": {"fused": True},
    "experts": {"n_experts": 5, "bias": False},
}


def logits_of(path: Path, metadata: dict[str, Any], arrays: dict[str, Any], chunk: int) -> Any:
    with tiny.open_model(path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64)
        executable = BACKEND.compile(program, file.tensors, limits_for(64))
        return run_tokens(executable, TOKENS, np.arange(len(TOKENS)), chunk)


@pytest.mark.parametrize("chunk", [23, 5])
@pytest.mark.parametrize("name", LLAMAS)
def test_llama_matches_the_eager_pass(tmp_path: Path, name: str, chunk: int) -> None:
    metadata, arrays = tiny.llama(**LLAMAS[name])
    found = logits_of(tmp_path, metadata, arrays, chunk)
    np.testing.assert_allclose(found, llama_logits(metadata, arrays, TOKENS), atol=2e-5)


@pytest.mark.parametrize("chunk", [23, 5])
def test_gemma3_matches_the_eager_pass(tmp_path: Path, chunk: int) -> None:
    metadata, arrays = tiny.gemma3()
    found = logits_of(tmp_path, metadata, arrays, chunk)
    np.testing.assert_allclose(found, gemma3_logits(metadata, arrays, TOKENS), atol=2e-5)


@pytest.mark.parametrize("chunk", [23, 5])
@pytest.mark.parametrize("options", [{}, {"k_heads": 3, "v_heads": 3, "layers": "ra"}])
def test_qwen35_matches_the_eager_pass(tmp_path: Path, chunk: int, options: Any) -> None:
    metadata, arrays = tiny.qwen35(**options)
    found = logits_of(tmp_path, metadata, arrays, chunk)
    np.testing.assert_allclose(found, qwen35_logits(metadata, arrays, TOKENS), atol=3e-5)


@pytest.mark.parametrize("chunk", [23, 5, 1])
@pytest.mark.parametrize("options", [{}, {"bias": True, "n_taps": 4, "layers": "acca"}])
def test_lfm2_matches_the_eager_pass(tmp_path: Path, chunk: int, options: Any) -> None:
    metadata, arrays = tiny.lfm2(**options)
    found = logits_of(tmp_path, metadata, arrays, chunk)
    np.testing.assert_allclose(found, lfm2_logits(metadata, arrays, TOKENS), atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"bias": True, "n_taps": 5, "layers": "acca"}])
def test_lfm2_that_looks_ahead_matches_the_eager_pass(tmp_path: Path, options: Any) -> None:
    metadata, arrays = tiny.lfm2(attention__causal=False, pooling_type=0, **options)
    found = logits_of(tmp_path, metadata, arrays, 23)
    np.testing.assert_allclose(found, lfm2_rows(metadata, arrays, TOKENS), atol=2e-5)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("options", [{}, {"k_heads": 3, "v_heads": 12, "layers": "rra"}])
def test_qwen3next_is_a_qwen35_of_other_order(tmp_path: Path, options: Any, is_old: bool) -> None:
    metadata, arrays = tiny.qwen35moe(**options)
    expected = qwen35_logits(metadata, arrays, TOKENS)
    found = logits_of(tmp_path, *qwen3next(is_old=is_old, **options), 23)
    np.testing.assert_allclose(found, expected, atol=3e-5)


@pytest.mark.parametrize(
    ("make", "eager"),
    [
        (tiny.llama, llama_logits),
        (tiny.gemma3, gemma3_logits),
        (tiny.lfm2, lfm2_logits),
        (tiny.qwen35, qwen35_logits),
        (tiny.qwen35moe, qwen35_logits),
    ],
)
def test_every_tensor_matters(
    make: Callable[..., Any], eager: Callable[..., Any], tmp_path: Path
) -> None:
    """Changing any one weight changes the logits, as it does in the eager pass."""
    metadata, arrays = make()
    base = logits_of(tmp_path, metadata, arrays, 23)
    for name in arrays:
        if ".1." in name:
            continue
        changed = arrays | {name: arrays[name] * np.float32(1.5)}
        found = logits_of(tmp_path, metadata, changed, 23)
        scale_free = name.endswith(("attn_k.bias",))
        assert scale_free or not np.array_equal(found, base), name
        np.testing.assert_allclose(found, eager(metadata, changed, TOKENS), atol=1e-4)
