"""benchmarks.kv_types prints a row a type."""

import re
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import kv_types


def test_each_type_has_its_bytes_and_its_divergence(
    monkeypatch, capsys, smollm2_path, shared_dir
) -> None:
    options = ["--only", "smollm2", "--kv-type", "f16", "q4_0", "--longest", "30", "-t", "1"]
    at = ["--reference", str(shared_dir / "reference")]
    monkeypatch.setattr(sys, "argv", ["kv_types", *options, *at])

    kv_types.main()

    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d\.\d+) \|$", capsys.readouterr().out, re.M)
    assert [row[:2] for row in rows] == [("f16", "23040"), ("q4_0", "6480")]
    assert float(rows[0][2]) < 0.001 < float(rows[1][2]) < 0.1
