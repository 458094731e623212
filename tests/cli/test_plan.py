"""`edgeinfer plan`: what it prints of a small model."""

import json

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.kernels.native import machine
from tests.arch import tiny
from tests.arch.test_encoders import bert


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


def test_a_model_that_only_reads_has_no_speed_of_answers(tiny_gguf, capsys, monkeypatch):
    pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")
    monkeypatch.setattr(machine, "READ_BYTES", 1 << 20)
    file = str(tiny_gguf(*bert()))
    assert main(["plan", file]) == 0
    out = capsys.readouterr().out
    assert "tokens a second, and writes none" in out
    assert f"edgeinfer bench {file} -n 0" in out
    assert "when the context is full" not in out
    assert main(["plan", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["writes"]
    assert "most_tokens_per_s" not in found
