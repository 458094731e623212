"""The roofs are measured for every level of this CPU, and for nothing else."""

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from edgeinfer.kernels.native import isa, machine


@pytest.mark.parametrize("measure", [machine.int8_peak, machine.f32_peak])
def test_every_level_has_a_peak(measure) -> None:
    assert all(measure(level, n_threads) > 0 for level in isa.levels() for n_threads in (1, 3))


@pytest.mark.parametrize("measure", [machine.int8_peak, machine.f32_peak])
def test_an_unknown_level_has_none(measure) -> None:
    assert measure("avx9", 1) == 0.0


def test_memory_too_small_for_a_stream_is_not_measured(monkeypatch) -> None:
    monkeypatch.setattr(machine, "READ_BYTES", 1000)
    assert machine.read_bandwidth(2) == 0.0


@pytest.mark.parametrize("n_megabytes", [1, 3, 9])
def test_any_other_size_is(monkeypatch, n_megabytes: int) -> None:
    monkeypatch.setattr(machine, "READ_BYTES", n_megabytes << 20)
    assert machine.read_bandwidth(2) > 0
