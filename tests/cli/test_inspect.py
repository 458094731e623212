"""`edgeinfer inspect`: what it shows of small files and of a real one."""

import json

import numpy as np
import pytest

from edgeinfer.cli.__main__ import main

METADATA = {
    "general.architecture": "llama",
    "note": "x" * 100,
    "numbers": list(range(20)),
    "few": [1, 2],
    "words": ["a", "b\x1b[31m"],
    "nan": float("nan"),
    "bad\x1bkey": 1,
}
TENSORS = {
    "token_embd.weight": ("Q8_0", (3, 64)),
    "output_norm.weight": np.ones(64, np.float32),
    "blk.0.attn_q.weight": ("Q8_0", (2, 32)),
}


@pytest.fixture
def file(tiny_gguf):
    return str(tiny_gguf(METADATA, TENSORS))


def test_report(file, capsys):
    assert main(["inspect", file]) == 0
    out = capsys.readouterr().out
    assert "GGUF version 3" in out
    assert "7 keys, 3 tensors" in out
    assert "... (100 characters)" in out
    assert "[0, 1, 2, 3, 4, 5, ...] (20 items)" in out
    assert "[1, 2]\n" in out
    assert "\x1b" not in out
    totals = [line.split() for line in out.splitlines()[-3:]]
    assert totals[0] == ["Q8_0", "2", "tensors", "256", "parameters", "272", "B"]
    assert totals[1] == ["F32", "1", "tensors", "64", "parameters", "256", "B"]
    assert totals[2][:7] == ["all", "3", "tensors", "320", "parameters", "528", "B"]


def test_a_report_card_is_shown_whatever_it_holds(tiny_gguf, capsys):
    card = {"kld": 0.03125, "kld_error": 0.5, "dataset": "a\x1b.txt", "n_tokens": [1, 2]}
    keys = {f"edgeinfer.report.{name}": value for name, value in card.items()}
    assert main(["inspect", str(tiny_gguf(METADATA | keys, TENSORS))]) == 0
    out = capsys.readouterr().out
    assert "?, measured against ? on 'a\\x1b.txt': ? tokens in ? windows of ?\n" in out
    assert "  kld         0.03125 ± 0.5\n" in out
    assert "\x1b" not in out


def test_full_report_shortens_nothing(file, capsys):
    assert main(["inspect", file, "--full"]) == 0
    out = capsys.readouterr().out
    assert "x" * 100 in out
    assert "18, 19]" in out


def test_json(file, capsys):
    assert main(["inspect", file, "--json"]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert report["metadata"]["numbers"] == {"items": 20, "first": [0, 1, 2, 3, 4, 5]}
    assert report["metadata"]["nan"] == "nan"
    assert report["tensors"][0] == {
        "name": "token_embd.weight",
        "format": "Q8_0",
        "shape": [3, 64],
        "bytes": 204,
    }
    assert report["parts"] == [file]
    assert main(["inspect", file, "--json", "--full"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["numbers"] == list(range(20))


def test_file_that_is_no_gguf(tmp_path, capsys):
    (tmp_path / "x.gguf").write_bytes(b"not a model at all, but long enough")
    assert main(["inspect", str(tmp_path / "x.gguf")]) == 3
    assert capsys.readouterr().err.startswith("edgeinfer: error: ")


def test_program_of_a_real_model(smollm2_path, capsys):
    assert main(["inspect", str(smollm2_path), "--program", "-c", "128"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# llama: 30 layers")
    assert "n_ctx 128" in out
