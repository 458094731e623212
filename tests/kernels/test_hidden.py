"""Hidden rows: on every backend they are what the head makes logits of, with it and without."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import BackendError
from edgeinfer.kernels.backend import Batch, choose
from tests.arch import tiny
from tests.kernels.kl import limits_for

N = 23


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
        batch = Batch(
            tokens=np.arange(N, dtype=np.int32),
            positions=np.arange(N, dtype=np.int32),
            sequences=np.zeros(N, np.int32),
            page_tables=np.zeros((1, 1), np.int32),
            wanted=np.array([3, 9, N - 1], np.int32),
        )
        logits, hidden = executable.run(batch).copy(), executable.hidden().copy()
        assert hidden.shape == (3, executable.n_hidden) == (3, 80)
        np.testing.assert_allclose(hidden @ arrays["output.weight"].T, logits, atol=1e-4)
        assert len(executable.run(replace(batch, hidden_only=True))) == 0
        assert (executable.hidden() == hidden).all()
        executable.close()
