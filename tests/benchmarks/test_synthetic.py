"""Models of the benchmarks: SHAPE:RECIPE names a file that is written once; aims are marked."""

import argparse
import sys

import pytest

from benchmarks import acceptance, synthetic
from benchmarks.measuring import parse_row

TOOL = "import sys; open(sys.argv[2], 'w').write(' '.join(sys.argv[3:]))"


@pytest.fixture
def options(tmp_path, monkeypatch) -> argparse.Namespace:
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    monkeypatch.setattr(synthetic, "resolve", lambda name: tmp_path / name)
    return argparse.Namespace(folder=tmp_path / "made", synthetic_tool=tool)


def test_a_synthetic_model_is_written_once(options) -> None:
    path = synthetic.model_file("1b:q4_k_m", options)
    assert path == options.folder / "1b-q4_k_m.gguf"
    assert path.read_text() == "--shape 1b --recipe q4_k_m"
    path.write_text("kept")
    assert synthetic.model_file("1b:q4_k_m", options).read_text() == "kept"
    assert [p.name for p in options.folder.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["smollm2", "a.gguf", "hf:owner/repo:Q4_0", "9b:q4_k_m"])
def test_every_other_name_is_resolved(options, tmp_path, name: str) -> None:
    assert synthetic.model_file(name, options) == tmp_path / name


def test_rows_of_the_acceptance_are_rows(monkeypatch, capsys) -> None:
    for group in acceptance.GROUPS:
        assert [parse_row(aim.test) for aim in group.aims]
    monkeypatch.setattr(sys, "argv", ["acceptance", "--only", "9b"])
    with pytest.raises(SystemExit):
        acceptance.main()
    assert "smollm2" in capsys.readouterr().err


def test_a_missed_aim_is_marked() -> None:
    assert acceptance.aimed(None, 1.0, "{:g}") == ""
    assert acceptance.aimed(2.4, 2.4, "{:g}") == "2.4"
    assert acceptance.aimed(0.65, 0.64, "{:.0%}") == "65% missed"
