"""benchmarks.speculation runs whole on a small scale."""

import json
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import speculation


def test_every_row_has_its_ratio(monkeypatch, capsys, smollm2_path) -> None:
    options = ["-n", "4", "--rounds", "1", "--repeat", "1", "-t", "1", "--cpu", "--json"]
    monkeypatch.setattr(sys, "argv", ["speculation", str(smollm2_path), *options])

    speculation.main()

    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == ["edit", "code", "prose", "greedy"]
    assert all(row["ratio"] > 0 and row["tokens"] > 0 for row in rows.values())
