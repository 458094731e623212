"""`edgeinfer quantize`: what it prints, and how it ends."""

import os

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.cli.options import read_size
from edgeinfer.errors import InvalidParameterError
from tests.arch import tiny
from tests.gguf_writer import write_gguf
from tests.shrinking.spoken import TEXT, write_spoken


@pytest.fixture
def source(tmp_path):
    return write_gguf(tmp_path / "in.gguf", *tiny.llama(n_embd=320, bias=False))


def test_the_path_stands_on_the_last_line(source, tmp_path, capsys):
    target = tmp_path / "out.gguf"
    assert main(["quantize", str(source), str(target), "f16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(target)
    assert lines[-2] == "F16: 2.0 MB -> 1.0 MB, 16.05 bits a weight"
    assert [line.split()[:3] for line in lines[:2]] == [
        ["F16", "16", "tensors"],
        ["F32", "6", "tensors"],
    ]
    assert target.stat().st_size == pytest.approx(source.stat().st_size / 2, rel=0.1)


def test_a_dry_run_names_fallbacks_and_writes_nothing(source, tmp_path, capsys):
    target = tmp_path / "out.gguf"
    assert main(["quantize", str(source), str(target), "q4_k_m", "--dry-run", "-v"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[4].split()[0] == "blk.0.attn_q.weight"
    assert "F32 -> Q5_0 for Q4_K" in lines[4]
    named = sum("Q5_0 for Q4_K" in line for line in lines)
    assert named > 5
    told = f"Q5_0 instead of Q4_K for {named} tensors, whose rows of 320 values are no multiple of"
    assert any(line.startswith(told) for line in lines)
    assert not target.exists()
    assert str(target) not in out


def test_what_was_lost_is_printed_and_inspect_shows_it(tmp_path, capsys):
    source, target = write_spoken(tmp_path / "in.gguf"), str(tmp_path / "out.gguf")
    (tmp_path / "sea.txt").write_text(TEXT)
    text = ["-f", str(tmp_path / "sea.txt")]
    assert main(["quantize", str(source), target, "Q8_0", "--report", *text]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == target
    assert lines[-2] == "over 127 tokens in 1 window of 256"
    (kld,) = (line.split()[1] for line in lines if line.startswith("kld "))
    assert main(["inspect", target]) == 0
    out = capsys.readouterr().out
    assert "Q8_0, measured against in.gguf on sea.txt: 127 tokens in 1 window of 256\n" in out
    assert f"  kld         {float(kld):.3g}"[:18] in out
    assert main(["quantize", str(source), target, "Q8_0", "--force", *text]) == 2
    assert "nothing to measure" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["F16"], 0, ""),
        (["Q9"], 2, "recipe 'Q9': unknown"),
        (["Q4_K_M", "--strict"], 3, "cannot be Q4_K"),
        (["F16", "--tensor-type", "attn_q"], 2, "need REGEX=TYPE"),
        (["F16", "--tensor-type", "attn_q=Q9"], 2, "format 'Q9' is unknown"),
        (["F16", "--split-max-size", "many"], 2, "size 'many': not understood"),
    ],
)
def test_each_failure_has_its_code(source, tmp_path, capsys, arguments, code, message):
    assert main(["quantize", str(source), str(tmp_path / "out.gguf"), *arguments]) == code
    assert message in capsys.readouterr().err


def test_the_same_file_by_another_spelling_is_refused(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = source.read_bytes()
    os.symlink(source, "link.gguf")
    os.link(source, "hard.gguf")
    for target in ("in.gguf", "./in.gguf", "link.gguf", "hard.gguf"):
        assert main(["quantize", "./in.gguf", target, "F16", "--force"]) == 2
        assert "the output is the input" in capsys.readouterr().err
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("5", 5), ("2k", 2000), ("500M", 5 * 10**8), ("2.5GB", 25 * 10**8), ("1 GiB", 1 << 30)],
)
def test_sizes_are_written_as_people_do(text, n_bytes):
    assert read_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "M", "-1", "1T", "1e9", "1 2", "i"])
def test_other_sizes_are_refused(text):
    with pytest.raises(InvalidParameterError):
        read_size(text)
