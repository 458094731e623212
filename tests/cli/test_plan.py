"""`edgeinfer plan`: what it prints of a small model."""

import json

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.kernels.native import machine
from tests.arch import tiny


@pytest.fixture
def file(tiny_gguf, monkeypatch):
    monkeypatch.setattr(machine, "READ_BYTES", 1 << 20)
    return str(tiny_gguf(*tiny.llama()))


def test_report_names_parts_verdict_and_the_way_to_the_real_speed(file, capsys):
    assert main(["plan", file, "-c", "100"]) == 0
    out = capsys.readouterr().out
    for title in ("weights", "kv", "scratch", "verdict   fits: needs"):
        assert f"\n{title}" in out
    assert "for 100 tokens in f16" in out
    assert f"edgeinfer bench {file}" in out


def test_json_holds_the_estimate_and_the_bounds(file, capsys):
    pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")
    assert main(["plan", file, "--json", "--kv-type", "q8_0", "-np", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["kv_type"], found["n_sequences"]) == (file, "q8_0", 2)
    assert found["most_tokens_per_s"] > found["most_tokens_per_s_full"] > 0
    expected = found["read_bytes_per_s"] / found["token_bytes"]
    assert found["most_tokens_per_s"] == pytest.approx(expected)


def test_quick_measures_nothing(file, capsys, monkeypatch):
    monkeypatch.setattr(machine, "read_bandwidth", pytest.fail)
    assert main(["plan", file, "--quick"]) == 0
    assert "tokens a second" not in capsys.readouterr().out


def test_what_cannot_run_has_no_speed(file, capsys):
    assert main(["plan", file, "-c", "256", "-np", "2000000000"]) == 0
    out = capsys.readouterr().out
    assert "verdict   cannot: needs" in out
    assert "bench" not in out
