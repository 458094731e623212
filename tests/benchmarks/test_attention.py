"""The attention benchmark runs, fills every page it reads, and counts its work."""

import json

import pytest

pytest.importorskip("edgeinfer.kernels.native._native")

from benchmarks import attention


def test_rows_say_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "LEAST_BYTES", 1)
    monkeypatch.setattr("edgeinfer.kernels.native.machine.read_bandwidth", lambda n: 1e9)
    monkeypatch.setattr("edgeinfer.kernels.native.machine.f32_peak", lambda name, n: 1e9)
    options = ["--dim", "64", "--context", "512", "--seconds", "0", "--json"]
    monkeypatch.setattr("sys.argv", ["attention", *options])
    attention.main()
    rows = json.loads(capsys.readouterr().out)
    assert [(r["step"], r["kv_type"]) for r in rows] == [
        ("decode", "f32"),
        ("decode", "f16"),
        ("decode", "q8_0"),
        ("decode", "q4_0"),
        ("prefill", "f32"),
        ("prefill", "f16"),
        ("prefill", "q8_0"),
        ("prefill", "q4_0"),
    ]
    assert all(row["rate"] == pytest.approx(row["share"] * 1e9) for row in rows)


def test_work_is_what_the_tokens_see() -> None:
    one = attention.Shape("decode", 1, 512, 64, "f16")
    assert one.n_macs == 2 * 32 * 64 * 512 * one.n_layers
    assert one.n_layers == 64
    two = attention.Shape("prefill", 2, 512, 64, "f16")
    assert two.n_macs == 2 * 32 * 64 * (511 + 512)
