"""benchmarks.kernels and benchmarks.disturbed run whole on a small scale."""

import json
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import disturbed, kernels
from edgeinfer.kernels.native import machine


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    monkeypatch.setattr(machine, "READ_BYTES", 8 << 20)


def test_every_column_has_a_rate_and_a_share_of_the_nearer_roof(monkeypatch, capsys) -> None:
    options = ["--format", "F16", "Q4_0", "--megabytes", "1", "--seconds", "0"]
    monkeypatch.setattr(kernels, "CACHED_ROWS", 256)
    monkeypatch.setattr(sys, "argv", ["kernels", *options, "--json"])
    kernels.main()
    rows = json.loads(capsys.readouterr().out)
    assert [(row["format"], row["activations"]) for row in rows] == [
        *(("F16", "float"), ("Q4_0", "coarse"), ("Q4_0", "fine")),
    ]
    for row in rows:
        assert list(row["tokens"]) == ["1", "2", "4", "8", "256"]
        for column in row["tokens"].values():
            assert column["rate"] > 0
            assert column["share"] > 0
        assert row["roofs"].keys() == {"memory", "macs"}


def test_every_state_is_measured_in_every_round(monkeypatch, capsys, smollm2_path) -> None:
    options = ["-t", "1", "--rounds", "2", "--test", "pp2", "tg1", "--state", "pinned", "2x"]
    monkeypatch.setattr(sys, "argv", ["disturbed", str(smollm2_path), *options, "--json"])
    disturbed.main()
    rates = json.loads(capsys.readouterr().out)
    assert list(rates) == ["quiet", "pinned", "2x"]
    for tests in rates.values():
        assert list(tests) == ["pp2", "tg1"]
        assert all(len(found) == 2 and min(found) > 0 for found in tests.values())
