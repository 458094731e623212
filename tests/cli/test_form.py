"""`--json-schema`, `--grammar` and their files: what reaches the model, what is refused."""

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.text.grammar import Grammar
from tests.cli.stdin import Stdin

SCHEMA = '{"type": "object", "properties": {"a": {"type": "null"}}}'
GBNF = 'root ::= "yes" | "no"'


@pytest.mark.parametrize(
    ("flag", "text", "expected"),
    [
        ("-j", SCHEMA, Grammar.from_json_schema(SCHEMA)),
        ("--json-schema", "{}", Grammar.from_json_schema({})),
        ("-jf", SCHEMA, Grammar.from_json_schema(SCHEMA)),
        ("--json-schema-file", SCHEMA, Grammar.from_json_schema(SCHEMA)),
        ("--grammar", GBNF, Grammar.from_gbnf(GBNF)),
        ("--grammar", "start: /a/", Grammar.from_lark("start: /a/")),
        ("--grammar-file", GBNF, Grammar.from_gbnf(GBNF)),
    ],
)
def test_a_form_reaches_the_model(models, model_file, tmp_path, flag, text, expected):
    value = text
    if "f" in flag.removeprefix("--json-schema").removeprefix("--grammar"):
        value = str(tmp_path / "form")
        (tmp_path / "form").write_text(text, encoding="utf-8")

    assert main(["run", model_file, "-p", "x", flag, value]) == 0

    ((_, settings),) = models[0].requests
    assert settings == {"grammar": expected}


def test_it_holds_for_every_answer_of_a_chat(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"settings\n/set temp 0\nsettings\n"))

    assert main(["chat", model_file, "--grammar", GBNF]) == 0

    assert capsys.readouterr().out.count("kind='gbnf'") == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-j", "{"], "--json-schema: is not JSON"),
        (["-j", '{"$ref": "http://x"}'], "#/$ref"),
        (["--grammar", "root ::= thing"], "line 1, column 10: found 'thing'"),
        (["--grammar", ""], "found 0 characters"),
        (["--grammar-file", "/no/such/file"], "/no/such/file: No such file"),
        (["-jf", "/no/such/file"], "/no/such/file: No such file"),
        (["-j", "{}", "--grammar", GBNF], "--grammar and --json-schema: found 2 of them"),
    ],
)
def test_a_broken_form_is_a_usage_error_before_the_model_is_loaded(
    models, model_file, capsys, flags, message
):
    assert main(["run", model_file, "-p", "x", *flags]) == 2
    assert message in capsys.readouterr().err
    assert models == []
