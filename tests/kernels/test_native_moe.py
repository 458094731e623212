"""Whole models of experts on the native backend: near the reference, one result on every road."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels import precision
from edgeinfer.kernels.backend import Executable, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from tests.arch import tiny
from tests.kernels.kl import one_sequence, run_tokens
from tests.kernels.random_weights import all_matrices

pytest.importorskip("edgeinfer.kernels.native._native")

LIMITS = Limits(n_ctx=256, n_pages=8, n_batch=256, n_threads=2, activations="fine")
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 150)]
WANTED = [0, 70, 149]
BLOCKS = {"n_embd": 256, "n_heads": 16, "dim": 16, "n_ff": 512, "n_kv": 4, "bias": False}

MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "odd widths": ({"n_experts": 5, "bias": False}, ["F32"]),
    "whole blocks": ({**BLOCKS, "n_experts": 8}, ["Q4_K", "Q8_0", "Q6_K"]),
    "floats and integers": ({**BLOCKS, "n_experts": 4}, ["Q4_0", "F16", "Q5_K", "BF16", "F32"]),
    "one expert": ({**BLOCKS, "n_experts": 3, "expert_used_count": 1}, ["Q4_K"]),
    "all experts": ({**BLOCKS, "n_experts": 3, "expert_used_count": 3}, ["Q4_K"]),
    "many experts": (
        {**BLOCKS, "n_ff": 256, "n_experts": 64, "expert_used_count": 8},
        ["Q4_K", "Q6_K"],
    ),
}


def bits(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return x.view(np.uint32)


@contextmanager
def compiled(path: Path, model: str) -> Iterator[Callable[..., Executable]]:
    options, formats = MODELS[model]
    metadata, arrays = tiny.llama(**options)
    with tiny.open_model(path, metadata, all_matrices(arrays, formats)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        yield lambda backend=BACKEND, limits=LIMITS, **more: backend.compile(
            program, file.tensors, limits, **more
        )


@pytest.mark.parametrize("model", MODELS)
def test_a_model_of_experts_equals_the_reference(tmp_path: Path, model: str) -> None:
    with compiled(tmp_path, model) as make:
        made = [make(), make(REFERENCE)]
        found, expected = (run_tokens(executable, TOKENS, WANTED).copy() for executable in made)
        made[0].close()
    length = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(found - expected, axis=1) < 3e-3 * length).all()


@pytest.mark.parametrize("model", ["odd widths", "whole blocks", "many experts"])
def test_any_road_gives_the_same_bits(tmp_path: Path, model: str) -> None:
    """Chunks, one token at a time, any number of threads, any instruction set."""
    with compiled(tmp_path, model) as make:
        executable = make()
        whole = run_tokens(executable, TOKENS, WANTED)
        for chunk in (1, 7, 64):
            found = run_tokens(executable, TOKENS, WANTED, chunk=chunk)
            assert (bits(found) == bits(whole)).all()
        executable.close()
        for n_threads in (1, 3):
            limits = replace(LIMITS, n_threads=n_threads)
            executable = make(limits=limits)
            assert (bits(run_tokens(executable, TOKENS, WANTED)) == bits(whole)).all()
            executable.close()
        short = run_tokens(make(), TOKENS[:12], [3, 11])
        for level in isa.levels():
            executable = make(isa_name=level)
            assert (bits(run_tokens(executable, TOKENS[:12], [3, 11])) == bits(short)).all()
            executable.close()


def test_nothing_wanted_gives_no_rows(tmp_path: Path) -> None:
    """The last layer's experts then have no rows at all."""
    with compiled(tmp_path, "whole blocks") as make:
        executable = make()
        assert executable.run(one_sequence(TOKENS[:5], 0, [])).shape == (0, tiny.N_VOCAB)
        executable.close()


def test_precision_counts_the_experts_a_token_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 of 8 experts, three matrices each, in two layers, and what is dense."""
    options, _ = MODELS["whole blocks"]
    with tiny.open_model(tmp_path, *tiny.llama(**options)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
    dense = 2 * (256 * 256 * 2 + 64 * 256 * 2 + 8 * 256) + tiny.N_VOCAB * 256
    met = dense + 2 * 2 * 3 * 256 * 512
    for limit, is_small in ((met, True), (met - 1, False)):
        monkeypatch.setattr(precision, "SMALL", limit)
        is_fine = precision.policy(program, "auto")
        assert is_fine("blk.0.attn_q.weight") is is_small
        assert is_fine("blk.0.ffn_gate_inp.weight")
        assert not is_fine("blk.0.ffn_up_exps.weight")
