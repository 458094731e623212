"""The reference backend computes what transformers computes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels.backend import Executable
from edgeinfer.kernels.reference.backend import BACKEND
from edgeinfer.loader.gguf import open_gguf
from tests.kernels.kl import kl32, limits_for, read_cases, run_case

MODELS = {"smollm2": "smollm2_path", "gemma3": "gemma3_path"}
CASES = ("code", "count", "facts", "long", "mixed", "prose")


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Iterator[tuple[str, Executable]]:
    path: Path = request.getfixturevalue(MODELS[request.param])
    with open_gguf(path) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=2048)
        executable = BACKEND.compile(program, file.tensors, limits_for(2048))
        yield request.param, executable
        executable.close()


@pytest.mark.timeout(600)  # the long case is two thousand tokens
@pytest.mark.parametrize("name", CASES)
def test_matches_the_float32_truth(
    model: tuple[str, Executable], shared_dir: Path, name: str
) -> None:
    which, executable = model
    cases = {case.name: case for case in read_cases(shared_dir / "reference" / f"{which}.json")}
    assert set(cases) == set(CASES)
    found = kl32(run_case(executable, cases[name]), cases[name])
    assert np.mean(found) < 1e-5
