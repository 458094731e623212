"""benchmarks.serving runs whole on a small scale."""

import json
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import serving


def test_every_row_has_its_ratio(monkeypatch, capsys, smollm2_path) -> None:
    monkeypatch.setattr(serving, "ANSWER", 3)
    monkeypatch.setattr(serving, "N_PREFIX", 80)
    monkeypatch.setattr(serving, "SETTLE_S", 0.2)
    options = ["--repeat", "1", "--prompt", "40", "-t", "1", "--json"]
    monkeypatch.setattr(sys, "argv", ["serving", str(smollm2_path), *options])

    serving.main()

    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == ["together", "prefix", "beside 1", "beside 4"]
    assert all(row["ratio"] > 0 for row in rows.values())
