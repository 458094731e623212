"""`edgeinfer embed` and `edgeinfer rank`: where texts come from, what is printed."""

import json

import numpy as np
import pytest

from edgeinfer.cli.__main__ import main
from tests.cli.stdin import Stdin


def test_a_line_of_json_for_each_text(models, model_file, capsys, tmp_path):
    (tmp_path / "texts.txt").write_text("banana\n\n  \nx\n", encoding="utf-8")
    assert main(["embed", model_file, "a cat", "-f", str(tmp_path / "texts.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [[5, 2, 0.1], [6, 3, 0.1], [1, 0, 0.1]]
    assert models[0].load_options["pooling"] is None and models[0].closed


def test_stdin_is_read_where_no_text_is_given(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"one\ntwo\n"))
    assert main(["embed", model_file, "--dimensions", "1"]) == 0
    assert capsys.readouterr().out == "[3.0]\n[3.0]\n"


@pytest.mark.parametrize("command", [["embed"], ["rank", "-q", "x"]])
def test_stdin_that_is_no_text_is_refused_as_a_file_is(
    models, model_file, capsys, monkeypatch, command
):
    monkeypatch.setattr("sys.stdin", Stdin(b"one\ntw\xff\n"))
    assert main([command[0], model_file, *command[1:]]) == 2
    assert "stdin: byte 0xff at offset 6 is not UTF-8 text" in capsys.readouterr().err
    assert not models


def test_formats(models, model_file, capsys, tmp_path):
    path = tmp_path / "vectors"
    arguments = ["embed", model_file, "a", "bb", "--pooling", "last", "-o", str(path), "--format"]
    assert main([*arguments, "json"]) == 0
    found = json.loads(path.read_text())
    assert [item["embedding"] for item in found["data"]] == [[1, 1, 0.1], [2, 0, 0.1]]
    assert found["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert models[0].load_options["pooling"] == "last"
    assert main([*arguments, "npy"]) == 0
    assert np.load(path).shape == (2, 3)
    assert capsys.readouterr().out == ""
    assert main(["embed", model_file, "a", "--format", "npy"]) == 2
    assert "need the file to write" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["embed"], ["rank", "-q", "x"]])
def test_no_text_is_a_usage_error(models, model_file, capsys, monkeypatch, command):
    monkeypatch.setattr("sys.stdin", Stdin(b"\n"))
    assert main([command[0], model_file, *command[1:]]) == 2
    assert "texts: found none" in capsys.readouterr().err


def test_documents_come_best_first(models, model_file, capsys):
    documents = ["no", "a a", "a"]
    assert main(["rank", model_file, *documents, "-q", "a", "-n", "2"]) == 0
    assert capsys.readouterr().out == "1.0000\ta a\n0.5000\ta\n"
    assert main(["rank", model_file, *documents, "-q", "a", "--json", "--raw"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["index"] for result in results] == [1, 2, 0]
    assert results[0] == {"index": 1, "score": 2, "n_tokens": 3, "document": "a a"}


def test_what_writes_is_refused_of_a_model_that_reads(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("tests.cli.fake_model.FakeModel.pooling", "rank")
    assert main(["chat", model_file]) == 3
    assert f"need 'edgeinfer rank {model_file}'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["embed"], ["rank", "-q", "x"]])
def test_what_guesses_answers_is_no_option_here(models, model_file, capsys, command):
    for flag in (["--no-speculate"], ["--draft", model_file]):
        assert main([*command, model_file, "a", *flag]) == 2
        assert flag[0] in capsys.readouterr().err


def test_an_output_without_a_folder_is_refused_before_a_model_is_loaded(
    models, model_file, capsys, tmp_path
):
    assert main(["embed", model_file, "a", "-o", str(tmp_path / "none" / "x.jsonl")]) == 4
    assert "no such folder; make it first" in capsys.readouterr().err and not models
