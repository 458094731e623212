"""KV pages as bytes: only the positions asked for are read, and what was read can be written."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import BackendError, InvalidParameterError, ModelClosedError
from edgeinfer.kernels.backend import KV_TYPES, PAGE_LEN, Batch, Executable, Limits, choose
from tests.arch import tiny

LIMITS = Limits(n_ctx=256, n_pages=8, n_batch=256, n_threads=1)
TOKENS = np.arange(3, 143, dtype=np.int32) % tiny.N_VOCAB
KINDS = [
    *(("native", kv_type) for kv_type in KV_TYPES),
    ("jit", "f32"),
    ("jit", "f16"),
    ("reference", "f16"),
]


@pytest.fixture(params=KINDS, ids="-".join)
def executable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Executable]:
    name, kv_type = request.param
    try:
        backend = choose(name)
    except BackendError as error:
        pytest.skip(str(error))
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = backend.compile(program, file.tensors, replace(LIMITS, kv_type=kv_type))
        yield made
        made.close()


def run(executable: Executable, first: int, end: int, pages: list[int]) -> np.ndarray:
    n = end - first
    batch = Batch(
        tokens=TOKENS[first:end],
        positions=np.arange(first, end, dtype=np.int32),
        sequences=np.zeros(n, np.int32),
        page_tables=np.array([pages], np.int32),
        wanted=np.array([n - 1], np.int32),
    )
    return executable.run(batch)[0].view(np.uint32).copy()


def test_what_was_written_serves_like_what_was_computed(executable: Executable) -> None:
    run(executable, 0, 130, [0, 1, 2])
    expected = run(executable, 130, 140, [0, 1, 2])
    for source, target, n in ((0, 5, PAGE_LEN), (1, 3, PAGE_LEN), (2, 7, 130 - 2 * PAGE_LEN)):
        executable.write_page(target, executable.read_page(source, n))
    assert (run(executable, 130, 140, [5, 3, 7]) == expected).all()


@pytest.mark.parametrize("n", [0, 1, 17, 63])
def test_nothing_behind_the_positions_is_read(executable: Executable, n: int) -> None:
    """The page was filled to its end by another; what is read is as if it never had been."""
    run(executable, 0, PAGE_LEN, [4])
    if n:
        run(executable, 0, n, [6])
    found = executable.read_page(4, n)
    expected = executable.read_page(6, PAGE_LEN)
    if executable.page_layout.startswith("reference"):  # BLAS rounds by the shape of a step
        found, expected = found.view(np.float32), expected.view(np.float32)
        assert np.allclose(found, expected, atol=1e-4)
        assert ((found == 0) == (expected == 0)).all()
        return
    assert (found == expected).all()
    assert found.any() == (n > 0)
    assert found.shape == (executable.page_bytes,)


def test_reading_leaves_the_page_as_it_is(executable: Executable) -> None:
    run(executable, 0, PAGE_LEN, [4])
    before = executable.read_page(4, PAGE_LEN)
    executable.read_page(4, 3)
    assert (executable.read_page(4, PAGE_LEN) == before).all()


def test_what_does_not_fit_a_page_is_refused(executable: Executable) -> None:
    data = executable.read_page(0, PAGE_LEN)
    for page in (-1, 8):
        with pytest.raises(InvalidParameterError, match="need 0 to 7"):
            executable.read_page(page, 1)
        with pytest.raises(InvalidParameterError, match="need 0 to 7"):
            executable.write_page(page, data)
    with pytest.raises(InvalidParameterError, match="need 0 to 64"):
        executable.read_page(0, 65)
    for wrong in (data[1:], data.astype(np.int16), np.append(data, data)):
        with pytest.raises(InvalidParameterError, match="data: found"):
            executable.write_page(0, wrong)


def test_a_closed_executable_has_no_pages(executable: Executable) -> None:
    data = executable.read_page(0, PAGE_LEN)
    executable.close()
    with pytest.raises(ModelClosedError):
        executable.read_page(0, 1)
    with pytest.raises(ModelClosedError):
        executable.write_page(0, data)
