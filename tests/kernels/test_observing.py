"""What matrices multiply, summed while a model runs: right, the same on every road, unnoticed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.backend import Executable, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program.ops import ExpertLinear, Linear
from edgeinfer.quant.imatrix import Sums
from tests.arch import tiny
from tests.kernels.kl import run_tokens
from tests.kernels.random_weights import all_matrices

pytest.importorskip("edgeinfer.kernels.native._native")

LIMITS = Limits(n_ctx=128, n_pages=4, n_batch=128, n_threads=2, activations="fine")
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 100)]
BLOCKS = {"n_embd": 256, "n_heads": 16, "dim": 16, "n_ff": 512, "n_kv": 4, "bias": False}
MODELS: dict[str, dict[str, Any]] = {
    "dense": BLOCKS,
    "experts": {**BLOCKS, "n_experts": 6, "expert_used_count": 2},
    "odd widths": {"bias": False},
}
WANTED = [*range(100)]  # of the last layer, only the rows that are wanted are computed
Made = tuple[Executable, dict[str, Sums]]


@contextmanager
def compiled(path: Path, model: str) -> Iterator[Callable[..., Made]]:
    """Yield what compiles the model and returns it with the sums of all its matrices."""
    metadata, arrays = tiny.llama(**MODELS[model])
    formats = ["F32"] if model == "odd widths" else ["Q4_K", "Q8_0", "Q6_K"]
    with tiny.open_model(path, metadata, all_matrices(arrays, formats)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=128)
        refs = [op.weight for op in program.ops if isinstance(op, Linear | ExpertLinear)]

        def make(backend: Any = BACKEND, limits: Limits = LIMITS, **more: Any) -> Made:
            sums = {
                ref.name: Sums.zeros(ref.size // (ref.shape[-2] * ref.shape[-1]), ref.shape[-1])
                for ref in refs
            }
            made = backend.compile(program, file.tensors, limits, observe=sums, **more)
            return made, sums

        make.plain = lambda: BACKEND.compile(program, file.tensors, LIMITS)  # type: ignore[attr-defined]
        yield make


@pytest.mark.parametrize("model", MODELS)
def test_sums_are_those_of_the_reference(tmp_path: Path, model: str) -> None:
    with compiled(tmp_path, model) as make:
        native, found = make()
        run_tokens(native, TOKENS, WANTED)
        reference, expected = make(REFERENCE)
        run_tokens(reference, TOKENS, WANTED)

    assert any(len(sums.counts) > 1 for sums in found.values()) == (model == "experts")
    for name, sums in found.items():
        if len(sums.counts) == 1:
            assert sums.counts.tolist() == [len(TOKENS)], name
        # a router on the edge may send a token elsewhere
        assert np.abs(sums.counts - expected[name].counts).sum() <= 0.02 * sums.counts.sum()
        total, right = sums.squares.sum(axis=0), expected[name].squares.sum(axis=0)
        assert np.linalg.norm(total - right) <= 1e-3 * np.linalg.norm(right), name
        np.testing.assert_allclose(total, right, rtol=5e-3)


@pytest.mark.parametrize("model", MODELS)
def test_any_road_gives_the_same_sums_bit_for_bit(tmp_path: Path, model: str) -> None:
    with compiled(tmp_path, model) as make:
        whole, expected = make()
        run_tokens(whole, TOKENS, WANTED)
        for level in isa.levels():
            for n_threads, n_at_once in ((1, 100), (2, 7), (3, 64)):
                limits = replace(LIMITS, n_threads=n_threads)
                executable, found = make(limits=limits, isa_name=level)
                run_tokens(executable, TOKENS, WANTED, chunk=n_at_once)
                for name, sums in found.items():
                    assert (sums.squares == expected[name].squares).all(), (level, name)
                    assert (sums.counts == expected[name].counts).all()


@pytest.mark.parametrize("model", MODELS)
def test_observing_changes_no_bit_of_the_logits(tmp_path: Path, model: str) -> None:
    with compiled(tmp_path, model) as make:
        plain = run_tokens(make.plain(), TOKENS, WANTED)  # type: ignore[attr-defined]
        observed = run_tokens(make()[0], TOKENS, WANTED)
    assert (plain.view(np.uint32) == observed.view(np.uint32)).all()


def test_a_backend_that_cannot_observe_says_so(tmp_path: Path) -> None:
    from edgeinfer.kernels.jit.backend import BACKEND as JIT

    with compiled(tmp_path, "dense") as make, pytest.raises(UnsupportedModelError, match="observ"):
        make(JIT)
