"""benchmarks.prefix_file runs whole on a small scale."""

import re
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")

from benchmarks import prefix_file


def test_both_sides_answer_alike_and_one_finds_the_file(monkeypatch, capsys, smollm2_path) -> None:
    options = ["--repeat", "1", "--tokens", "80", "-t", "1"]
    monkeypatch.setattr(sys, "argv", ["prefix_file", str(smollm2_path), *options])
    monkeypatch.setenv("EDGEINFER_CACHE", "")  # set again by the benchmark, restored after the test

    prefix_file.main()

    printed = capsys.readouterr().out
    assert re.search(r"without: .* CPU s, 0 tokens cached", printed)
    assert re.search(r"with: .* CPU s, 80 tokens cached", printed)
