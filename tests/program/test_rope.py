"""RoPE tables are what the papers' formulas give."""

import math

import numpy as np
import pytest

from edgeinfer.program import rope


def test_plain_table_is_a_geometric_series() -> None:
    table = rope.plain(10000.0, 8)
    np.testing.assert_allclose(table.inv_freq, [1, 0.1, 0.01, 0.001])
    assert rope.linear(table, 4.0).inv_freq[1] == pytest.approx(0.025)


def test_llama3_keeps_fast_frequencies_and_divides_slow_ones() -> None:
    """The divisors of Llama 3.1 (factor 8, 8192 positions): the ends exact, the middle between."""
    table = rope.plain(500000.0, 128)
    found = rope.llama3_divisors(table, factor=8.0, low=1.0, high=4.0, n_ctx_original=8192)
    wavelength = 2 * math.pi / table.inv_freq
    assert (found[wavelength < 8192 / 4] == 1).all()
    np.testing.assert_allclose(found[wavelength > 8192], 8.0)
    middle = found[(wavelength > 8192 / 4) & (wavelength < 8192)]
    assert len(middle) > 0
    assert ((middle > 1) & (middle < 8)).all()
    assert (np.diff(found) >= 0).all()


def test_yarn_ramps_between_whole_dimensions() -> None:
    """n 24, theta 1e6, factor 16, 16 positions, beta 4 and 1: the ramp runs from 0 to 1."""
    table = rope.plain(1e6, 24)
    found = rope.yarn(table, theta=1e6, factor=16.0, n_ctx_original=16, beta_fast=4.0)
    assert found.inv_freq[0] == table.inv_freq[0]
    np.testing.assert_allclose(found.inv_freq[2:], table.inv_freq[2:] / 16)


def test_yarn_truncation_moves_the_ramp() -> None:
    table = rope.plain(150000.0, 64)
    both = [
        rope.yarn(table, theta=150000.0, factor=32.0, n_ctx_original=4096, truncate=truncate)
        for truncate in (True, False)
    ]
    stretch = [table.inv_freq / found.inv_freq for found in both]
    for found in stretch:
        assert found[0] == pytest.approx(1.0)
        assert found[-1] == pytest.approx(32.0)
        assert (np.diff(found) >= -1e-12).all()
    assert (np.abs(stretch[0] / stretch[1] - 1) > 0.01).any()


def test_mscales() -> None:
    assert rope.yarn_mscale(1.0) == 1.0
    assert rope.yarn_mscale(math.e**2) == pytest.approx(1.2)
    assert rope.longrope_mscale(4096, 4096) == 1.0
    assert rope.longrope_mscale(131072, 4096) == pytest.approx(math.sqrt(1 + 5 / 12))
