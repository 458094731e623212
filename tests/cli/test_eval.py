"""`edgeinfer eval`: its figures, as text and as JSON, and what it needs."""

import json

import pytest

from edgeinfer.cli.__main__ import main
from tests.arch.test_encoders import bert
from tests.gguf_writer import write_gguf
from tests.test_embedding import word_a_letter

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
    assert "over 31 tokens in 1 window of 64" in printed


def test_saved_logits_stand_for_reference_and_text(smollm2_path, text, tmp_path, capsys):
    name, kept = str(smollm2_path), str(tmp_path / "logits")
    windows = ["-c", "64", "--chunks", "1", "--json"]
    args = ["eval", "kld", name, name, "-f", text, *windows, "--save-logits", kept]
    assert main(args) == 0
    direct = json.loads(capsys.readouterr().out)
    assert main(["eval", "kld", name, "--logits", kept, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ppl"] == direct["ppl"]
    assert abs(found["kld"]["value"]) < 1e-6
    assert main(["eval", "ppl", name, "-f", text, "--logits", kept]) == 2
    assert main(args) == 2
    assert "logits: exists" in capsys.readouterr().err


def test_choice_tells_how_many_tasks_are_right(smollm2_path, tmp_path, capsys):
    tasks = tmp_path / "tasks.jsonl"
    endings = ["Paris, a city in Europe.", "bread, cheese the of on.", "seven green Tuesday."]
    task = {"ctx": "The capital of France is", "endings": endings, "label": 0}
    tasks.write_text(f"{json.dumps(task)}\n{json.dumps(task | {'label': 1})}\n")
    draft = ["--draft", "never-loaded"]
    args = ["eval", "choice", str(smollm2_path), "-f", str(tasks), "-c", "64", *draft]
    assert main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["accuracy"]["value"], found["n_tasks"]) == (0.5, 2)
    assert main([*args, "--chunks", "1"]) == 0
    assert "right, by the token      1.0000 ± nan" in capsys.readouterr().out
    assert main([*args, "--chunks", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["accuracy"] == {"value": 1.0, "error": None}


def test_plot_without_matplotlib_says_so_before_it_measures(monkeypatch, text, capsys):
    monkeypatch.setattr("edgeinfer.evaluating.plot.find_spec", lambda name: None)
    assert main(["eval", "plot", "none-a", "none-b", "-f", text]) == 1
    assert "pip install 'edgeinfer[eval]'" in capsys.readouterr().err


def test_plot_writes_a_picture_of_the_files(smollm2_path, text, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    name, picture = str(smollm2_path), tmp_path / "kld.png"
    args = ["eval", "plot", name, name, name, "-f", text, "-c", "32", "--chunks", "1"]
    assert main([*args, "-o", str(picture), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["n_bytes"] for point in found["points"]] == [98_362_432] * 2
    assert main([*args, "-o", str(tmp_path / "kld.gguf")]) == 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_where_no_picture_can_be_written_nothing_is_measured(smollm2_path, text, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "folder.png").mkdir()
    args = ["eval", "plot", "none-a", "none-b", "-f", text, "-o"]
    for output, words in (("no/x.png", "no: no such folder"), ("folder.png", "not a regular file")):
        assert main([*args, str(tmp_path / output)]) == 2
        assert words in capsys.readouterr().err


def test_a_window_too_short_to_predict_anything_is_refused_by_what_it_needs(
    smollm2_path, text, capsys
):
    assert main(["eval", "ppl", str(smollm2_path), "-f", text, "-c", "3"]) == 2
    assert "--ctx-size: found 3 (need at least 4" in capsys.readouterr().err


def test_compare_prints_both_files_side_by_side(smollm2_path, text, capsys):
    name = str(smollm2_path)
    args = ["compare", name, name, "-f", text, "-c", "64", "--chunks", "1", "--no-speed"]
    assert main(args) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["size", "98.4", "MB", "98.4", "MB"]
    assert next(line for line in lines if "attn_q" in line).split() == ["attn_q", "Q4_1", "Q4_1"]
    assert any(line.split() == ["same", "top", "1", "1.0000", "±", "0.0000"] for line in lines)
    assert main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["divergence"]["max"] == 0.0 and found["speed"] is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["ppl", "smollm2"], "no text (need -f FILE"),
        (["kld", "smollm2", "-f", "TEXT"], "found 1 models (need 2: REFERENCE MODEL)"),
        (["ppl", "a", "b", "-f", "TEXT"], "found 2 models (need 1: MODEL)"),
        (["plot", "a", "-f", "TEXT"], "found 1 models (need 2: REFERENCE MODEL...)"),
        (["choice", "smollm2"], "no tasks (need -f FILE"),
    ],
)
def test_what_is_missing_is_said(args, words, text, capsys):
    assert main(["eval", *(text if arg == "TEXT" else arg for arg in args)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", [["eval", "ppl"], ["eval", "kld"], ["compare"]])
def test_a_model_that_only_reads_cannot_be_measured(tmp_path, command, text, capsys):
    metadata, arrays = bert()
    file = str(write_gguf(tmp_path / "bert.gguf", metadata | word_a_letter(), arrays))
    names = [file] if command[-1] == "ppl" else [file, file]
    assert main([*command, *names, "-f", str(text)]) == 2
    assert "reads texts and predicts no next token" in capsys.readouterr().err
