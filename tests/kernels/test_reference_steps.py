"""The reference backend runs any mix of sequences, and knows what it lacks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import (
    CancelledError,
    InvalidParameterError,
    ModelClosedError,
)
from edgeinfer.kernels.backend import Batch, Cancel, Executable, Limits
from edgeinfer.kernels.reference.backend import BACKEND
from tests.arch import tiny
from tests.kernels.kl import one_sequence, run_tokens

LIMITS = Limits(n_ctx=256, n_pages=8, n_batch=256)
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 150)]


@pytest.fixture(params=["llama", "gemma3"])
def executable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executable]:
    metadata, arrays = getattr(tiny, request.param)()
    with tiny.open_model(tmp_path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = BACKEND.compile(program, file.tensors, LIMITS)
        yield made
        made.close()


def test_sequences_in_one_step_do_not_see_each_other(executable: Executable) -> None:
    """Two sequences in interleaved pages, one of them continued, equal each alone."""
    alone = run_tokens(executable, TOKENS, [139, 149]).copy()
    other = run_tokens(executable, TOKENS[:70][::-1], [69]).copy()
    pages = [5, 0, 7]
    executable.run(one_sequence(TOKENS[:140], 0, [], pages))
    batch = Batch(
        tokens=np.array(TOKENS[:70][::-1] + TOKENS[140:], np.int32),
        positions=np.array([*range(70), *range(140, 150)], np.int32),
        sequences=np.array([1] * 70 + [0] * 10, np.int32),
        page_tables=np.array([pages, [6, 1, -1]], np.int32),
        wanted=np.array([69, 79], np.int32),
    )
    found = executable.run(batch)
    np.testing.assert_allclose(found[0], other[0], atol=2e-5)
    np.testing.assert_allclose(found[1], alone[1], atol=2e-5)


def test_nothing_wanted_gives_no_rows(executable: Executable) -> None:
    assert executable.run(one_sequence(TOKENS[:5], 0, [])).shape == (0, tiny.N_VOCAB)


def test_a_bad_batch_leaves_the_executable_usable(executable: Executable) -> None:
    before = run_tokens(executable, TOKENS[:9], [8]).copy()
    with pytest.raises(InvalidParameterError, match="tokens: found 97"):
        executable.run(one_sequence([97], 0, [0]))
    assert np.array_equal(run_tokens(executable, TOKENS[:9], [8]), before)


def test_a_copied_page_serves_like_the_one_it_was_copied_from(executable: Executable) -> None:
    prompt, rest = TOKENS[:128], one_sequence(TOKENS[128:140], 128, [11])
    executable.run(one_sequence(prompt, 0, []))
    expected = executable.run(rest).copy()
    for page in (0, 1):
        executable.copy_page(page, page + 4)
    moved = replace(rest, page_tables=np.array([[4, 5, 6]], np.int32))
    assert (executable.run(moved) == expected).all()


def test_cancel_stops_a_step(executable: Executable) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError):
        executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel)
    cancel.clear()
    executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel)


def test_close_is_idempotent_and_final(executable: Executable) -> None:
    executable.close()
    executable.close()
    with pytest.raises(ModelClosedError):
        executable.run(one_sequence([1], 0, [0]))


def test_sizes_and_progress_are_reported(tmp_path: Path) -> None:
    metadata, arrays = tiny.llama()
    seen: list[tuple[int, int]] = []
    with tiny.open_model(tmp_path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = BACKEND.compile(
            program, file.tensors, LIMITS, progress=lambda done, total: seen.append((done, total))
        )
    table = arrays["token_embd.weight"].nbytes  # looked up in the file, never decoded whole
    factors = arrays["rope_freqs.weight"].nbytes
    decoded = sum(array.nbytes for array in arrays.values()) - table - factors
    assert made.weights_bytes == decoded
    assert made.state_bytes == 2 * 8 * 64 * 2 * (24 + 24) * 4
    assert seen[-1][0] == decoded
    assert all(done <= total for done, total in seen)
