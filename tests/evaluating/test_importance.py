"""Importance of a real model: what the compiled kernels sum is what the float32 model would."""

from dataclasses import replace

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, NonFiniteError, UnsupportedModelError
from edgeinfer.evaluating import importance
from edgeinfer.evaluating.importance import Observer
from edgeinfer.kernels.native import isa

TEXT = "The rain had stopped, but the gutters still ran, and small boats were seen in them. " * 4


@pytest.mark.skipif(isa.why_unavailable() is not None, reason="needs the compiled kernels")
def test_native_sums_are_within_a_thousandth_of_the_reference(smollm2_path):
    told = []
    options = {"n_ctx": 48, "chunks": 1, "dataset": "rain"}
    found = importance(smollm2_path, TEXT, progress=lambda *now: told.append(now), **options)
    right = importance(smollm2_path, TEXT, backend="reference", **options)

    assert (found.n_chunks, found.chunk_size, found.datasets) == (1, 48, ("rain",))
    assert told == [(1, 1)]
    assert found.sums.keys() == right.sums.keys()
    assert len(found.sums) == 210
    for name, sums in found.sums.items():
        expected = right.sums[name].squares
        assert np.linalg.norm(sums.squares - expected) <= 1.5e-3 * np.linalg.norm(expected), name


def test_windows_longer_than_a_step_have_the_same_sums(smollm2_path, monkeypatch):
    found = []
    for most in (48, 20):
        monkeypatch.setattr("edgeinfer.evaluating.window_model.MOST_BATCH", most)
        found.append(importance(smollm2_path, TEXT, n_ctx=48, chunks=1))
    whole, cut = found
    for name, sums in whole.sums.items():
        assert (cut.sums[name].squares == sums.squares).all(), name


def test_what_was_written_on_the_way_must_have_every_tensor_to_go_on(smollm2_path):
    with Observer(smollm2_path, n_ctx=16) as observer:
        windows = observer.windows(TEXT, most=2)
        observer.read(windows.ids[0])
        made = observer.imatrix()
    with Observer(smollm2_path, n_ctx=16) as observer:
        fewer = dict(list(made.sums.items())[1:])
        assert observer.resume(replace(made, sums=fewer), windows) == 0
        assert observer.resume(replace(made, origin="0"), windows) == 0
        assert observer.resume(made, windows) == 1


def test_a_snapshot_does_not_grow(smollm2_path):
    with Observer(smollm2_path, n_ctx=16) as observer:
        observer.read(tuple(range(16)))
        early = observer.imatrix()
        observer.read(tuple(range(16)))
        late = observer.imatrix()
    before, after = (one.sums["blk.3.attn_q.weight"] for one in (early, late))
    assert (early.n_chunks, late.n_chunks) == (1, 2)
    assert (before.counts.tolist(), after.counts.tolist()) == ([16.0], [32.0])
    np.testing.assert_allclose(after.squares, 2 * before.squares, rtol=1e-7)
    assert early.origin != late.origin


def test_what_is_not_finite_is_named(smollm2_path):
    with Observer(smollm2_path, n_ctx=16) as observer:
        observer.read(tuple(range(16)))
        observer._sums["blk.3.attn_q.weight"].squares[0, 0] = np.inf
        with pytest.raises(NonFiniteError, match="found NaN or infinity"):
            observer.imatrix()


def test_what_cannot_be_observed_is_refused(smollm2_path):
    with pytest.raises(InvalidParameterError, match="n_ctx: found 9999999"):
        importance(smollm2_path, TEXT, n_ctx=9_999_999)
    pytest.importorskip("numba")
    with pytest.raises(UnsupportedModelError, match="observe"):
        importance(smollm2_path, TEXT, n_ctx=16, backend="jit")
