"""Conversions of f16 are exact on CPUs that have them and on those that do not."""

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from edgeinfer.kernels.jit.verbs import vf_from_f16, vf_load, vf_store, vf_to_f16  # noqa: E402


@pytest.fixture(params=[False, True], ids=["by integers", "as the CPU can"])
def conversions(request, monkeypatch):
    """Return (widen, narrow) over addresses of n numbers, n a multiple of 16."""
    if not request.param:
        monkeypatch.setattr("edgeinfer.kernels.jit.emit.has_f16", lambda: False)

    def widen(source, to, n):
        for i in range(0, n, 16):
            vf_store(to + 4 * i, vf_from_f16(source + 2 * i))

    def narrow(source, to, n):
        for i in range(0, n, 16):
            vf_to_f16(to + 2 * i, vf_load(source + 4 * i))

    signature = numba.void(*[numba.int64] * 3)
    return [numba.njit(signature)(function) for function in (widen, narrow)]


def test_every_f16_becomes_its_float(conversions):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = np.empty(len(halves), np.float32)
    conversions[0](halves.ctypes.data, found.ctypes.data, len(halves))
    np.testing.assert_array_equal(found, halves.astype(np.float32))


def test_floats_become_the_nearest_f16(conversions):
    rng = np.random.default_rng(1)
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middles = (exact[1:] + exact[:-1]) / 2
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 65536, -1e30, 2.0**-26]
    parts = [edges, middles, np.nextafter(middles, np.float32(np.inf)), exact]
    parts.append(rng.standard_normal(2000) * np.exp2(rng.integers(-30, 18, 2000)))
    values = np.concatenate(parts).astype(np.float32)
    values = values[: len(values) // 16 * 16]
    found = np.empty(len(values), np.float16)
    conversions[1](values.ctypes.data, found.ctypes.data, len(values))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, values.astype(np.float16))
