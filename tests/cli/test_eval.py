"""`edgeinfer eval`: its figures, as text and as JSON, and what it needs."""

import json

import pytest

from edgeinfer.cli.__main__ import main

TEXT = "The paper boat went down the gutter, past the baker's and the bank, towards the sea. " * 12


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def test_perplexity_is_printed_and_is_that_of_the_json(smollm2_path, text, capsys):
    args = ["eval", "ppl", str(smollm2_path), "-f", text, "-c", "64", "--chunks", "2"]
    assert main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n_ctx"], found["n_chunks"], found["n_tokens"]) == (64, 2, 62)
    assert 1 < found["ppl"]["value"] < 60
    assert main(args) == 0
    assert f"{found['ppl']['value']:.4f} ± {found['ppl']['error']:.4f}" in capsys.readouterr().out


def test_divergence_of_a_file_from_itself_is_none(smollm2_path, text, capsys):
    name = str(smollm2_path)
    assert main(["eval", "kld", name, name, "-f", text, "-c", "64", "--chunks", "1"]) == 0
    printed = capsys.readouterr().out
    assert "0.000000 ± 0.000000" in printed
    assert "over 31 tokens in 1 windows of 64" in printed


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ppl", "smollm2"], "no text (need -f FILE"),
        (["kld", "smollm2", "-f", "TEXT"], "found 1 models (need 2: REFERENCE MODEL)"),
        (["ppl", "a", "b", "-f", "TEXT"], "found 2 models (need 1: MODEL)"),
    ],
)
def test_what_is_missing_is_said(args, words, text, capsys):
    assert main(["eval", *(text if arg == "TEXT" else arg for arg in args)]) == 2
    assert words in capsys.readouterr().err
