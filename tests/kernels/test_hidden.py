"""Hidden rows: on every backend they are what the head makes logits of, with it and without."""

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import BackendError, ModelClosedError
from edgeinfer.kernels.backend import Batch, choose
from tests.arch import tiny
from tests.kernels.kl import limits_for

N = 23


def batch_of_one() -> Batch:
    return Batch(
        tokens=np.arange(N, dtype=np.int32),
        positions=np.arange(N, dtype=np.int32),
        sequences=np.zeros(N, np.int32),
        page_tables=np.zeros((1, 1), np.int32),
        wanted=np.array([3, 9, N - 1], np.int32),
    )


@pytest.mark.parametrize("backend", ["reference", "jit", "native"])
def test_hidden_rows_are_what_logits_are_made_of(tmp_path: Path, backend: str) -> None:
    try:
        kernels = choose(backend)
    except BackendError as error:
        pytest.skip(str(error))
    metadata, arrays = tiny.llama(bias=False, rope_freqs=False)
    with tiny.open_model(tmp_path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64)
        executable = kernels.compile(program, file.tensors, limits_for(64))
        batch = batch_of_one()
        logits, hidden = executable.run(batch).copy(), executable.hidden().copy()
        assert hidden.shape == (3, executable.n_hidden) == (3, 80)
        np.testing.assert_allclose(hidden @ arrays["output.weight"].T, logits, atol=1e-4)
        assert len(executable.run(replace(batch, hidden_only=True))) == 0
        assert (executable.hidden() == hidden).all()
        executable.close()
        with pytest.raises(ModelClosedError):
            executable.hidden()


@pytest.mark.parametrize("is_closed", [True, False])
def test_rows_outlive_the_native_executable_that_made_them(tmp_path: Path, is_closed: bool) -> None:
    pytest.importorskip("edgeinfer.kernels.native._native")
    with tiny.open_model(tmp_path, *tiny.llama(bias=False, rope_freqs=False)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64)
        executable = choose("native").compile(program, file.tensors, limits_for(64))
        logits = executable.run(batch_of_one())
        hidden = executable.hidden()
        kept = logits.copy(), hidden.copy()
        if is_closed:
            executable.close()
        del executable
        gc.collect()
        np.testing.assert_array_equal(logits, kept[0])
        np.testing.assert_array_equal(hidden, kept[1])
