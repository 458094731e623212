"""The semantic search example prints the passage that answers."""

import importlib.util
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/semantic_search.py"


def test_the_passage_in_question_comes_first(smollm2_path, tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("semantic_search", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "PASSAGE_CHARS", 10)
    notes = tmp_path / "notes.txt"
    notes.write_text("Taxes are due in April.\n\nCats purr when they are content.\n\n1, 2, 3.")
    question = "Cats purr when they are happy"
    arguments = [question, str(notes), "--model", str(smollm2_path), "-n", "1"]
    monkeypatch.setattr(sys, "argv", ["semantic_search.py", *arguments])
    example.main()
    assert capsys.readouterr().out == "Cats purr when they are content.\n\n"
