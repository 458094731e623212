"""`edgeinfer imatrix`: what it writes, how it goes on, what it refuses, how it merges."""

import json

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.evaluating.importance import Observer
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.writer.imatrix import write_imatrix

TEXT = "Boats of paper sail well in gutters, and drown in the first puddle that has a wind. " * 12


@pytest.fixture
def run(smollm2_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    base = ["imatrix", str(smollm2_path), "-f", "text.txt", "-c", "32"]
    return lambda *args: main([*base, *args])


def test_every_matrix_of_the_layers_has_its_sums(run, capsys):
    assert run("--chunks", "2", "-o", "a.gguf", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tensors"], found["chunks"], found["chunk_size"]) == (210, 2, 32)

    made = read_imatrix("a.gguf")
    assert made.datasets == ("text.txt",)
    assert {tuple(sums.counts) for sums in made.sums.values()} == {(64.0,)}
    assert made.sums["blk.0.ffn_down.weight"].squares.shape == (1, 1536)
    assert all((sums.squares > 0).any() for sums in made.sums.values())


def test_it_goes_on_where_it_was_stopped(run, smollm2_path, capsys):
    assert run("--chunks", "1", "-o", "part.gguf") == 0
    assert run("--chunks", "3", "-o", "part.gguf") == 0
    assert "part.gguf: 1 of 3 windows are there" in capsys.readouterr().err
    assert run("--chunks", "3", "-o", "whole.gguf") == 0

    part, whole = read_imatrix("part.gguf"), read_imatrix("whole.gguf")
    assert part.origin == whole.origin and part.n_chunks == whole.n_chunks == 3
    for name, sums in whole.sums.items():
        assert part.sums[name].squares.tolist() == sums.squares.tolist(), name
        assert part.sums[name].counts.tolist() == sums.counts.tolist()


@pytest.mark.parametrize("args", [("-c", "16"), ("--in-file", "a.gguf")])
def test_what_is_there_of_something_else_is_left_alone(args, run, capsys):
    assert run("--chunks", "1", "-o", "a.gguf") == 0
    assert run("--chunks", "2", "-o", "a.gguf", *args) == 2
    assert "a.gguf: exists" in capsys.readouterr().err
    assert read_imatrix("a.gguf").n_chunks == 1
    assert run("--chunks", "1", "-o", "a.gguf", "-c", "16", "--force") == 0
    assert read_imatrix("a.gguf").chunk_size == 16


def test_neither_model_nor_text_is_written_over(run, smollm2_path, tmp_path, capsys):
    (tmp_path / "link.gguf").symlink_to(smollm2_path)
    before = smollm2_path.stat().st_mtime_ns
    for output in (str(smollm2_path), "link.gguf", "text.txt"):
        assert run("--chunks", "1", "-o", output, "--force") == 2
        assert "the output is the input" in capsys.readouterr().err
    assert smollm2_path.stat().st_mtime_ns == before
    assert run("--chunks", "1", "-o", "none/x.gguf") == 2
    assert "no such folder" in capsys.readouterr().err


def test_files_are_merged_with_and_without_a_model(run, tmp_path):
    assert run("--chunks", "1", "-o", "a.gguf") == 0
    assert run("--chunks", "1", "-o", "b.gguf", "--in-file", "a.gguf") == 0
    assert main(["imatrix", "--in-file", "a.gguf", "--in-file", "a.gguf", "-o", "c.gguf"]) == 0

    one, b, c = (read_imatrix(f"{name}.gguf") for name in "abc")
    assert b.n_chunks == c.n_chunks == 2
    for name, sums in one.sums.items():
        assert (b.sums[name].squares == 2 * sums.squares).all()
        assert (c.sums[name].squares == 2 * sums.squares).all()


def test_a_file_on_the_way_is_written_every_so_many_windows(run, smollm2_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "edgeinfer.writer.imatrix.write_imatrix",
        lambda path, made: (written.append(made.n_chunks), write_imatrix(path, made)),
    )
    assert run("--chunks", "5", "--output-frequency", "2") == 0
    assert written == [2, 4, 5]
    assert read_imatrix("imatrix.gguf").n_chunks == 5


def test_slow_windows_are_written_one_by_one(run, monkeypatch):
    written = []
    monkeypatch.setattr("edgeinfer.cli.imatrix.MOST_UNWRITTEN_S", 0)
    monkeypatch.setattr(
        "edgeinfer.writer.imatrix.write_imatrix",
        lambda path, made: (written.append(made.n_chunks), write_imatrix(path, made)),
    )
    assert run("--chunks", "3") == 0
    assert written == [1, 2, 3]


def test_the_output_matrix_counts_only_if_it_is_asked_for_and_there(smollm2_path):
    with Observer(smollm2_path, n_ctx=16, output=True) as observer:
        observer.read(tuple(range(16)))
        assert "output.weight" not in observer.imatrix().sums  # this model's is the embedding
