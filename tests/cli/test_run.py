"""`edgeinfer run`: where the prompt comes from, what is printed."""

import json

import pytest

from edgeinfer.cli.__main__ import main
from tests.cli.stdin import Stdin


def test_prompt_flag(models, model_file, capsys):
    assert main(["run", model_file, "-p", "hello world"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "You said: hello world.\n"
    assert shown.err == ""
    assert models[0].closed


def test_model_flag(models, model_file, capsys):
    assert main(["run", "-m", model_file, "-p", "x"]) == 0
    assert capsys.readouterr().out == "You said: x.\n"


def test_prompt_from_stdin(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin("zwei\nZeilen é".encode()))
    assert main(["run", model_file]) == 0
    assert capsys.readouterr().out == "You said: zwei\nZeilen é.\n"


def test_stdin_that_is_not_utf8_is_read_with_a_warning(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"a\xffb"))
    assert main(["run", model_file]) == 0
    shown = capsys.readouterr()
    assert shown.out == "You said: a\ufffdb.\n"
    assert "byte 0xff at offset 1" in shown.err


def test_empty_stdin_is_a_usage_error(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b""))
    assert main(["run", model_file]) == 2
    assert "found no text" in capsys.readouterr().err


def test_file_goes_before_the_prompt(models, model_file, capsys, tmp_path):
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    assert main(["run", model_file, "-f", str(tmp_path / "a.txt"), "-p", "Sum up:"]) == 0
    assert capsys.readouterr().out == "You said: text\nSum up:.\n"


def test_dash_as_file_is_stdin(models, model_file, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(b"piped"))
    assert main(["run", model_file, "-f", "-", "-p", "x"]) == 0
    assert capsys.readouterr().out == "You said: piped\nx.\n"


def test_stdin_is_not_read_when_there_is_a_prompt(models, model_file, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["run", model_file, "-p", "x"]) == 0


def test_file_that_is_not_text(models, model_file, capsys, tmp_path):
    (tmp_path / "a").write_bytes(b"ok\xff")
    assert main(["run", model_file, "-f", str(tmp_path / "a")]) == 2
    assert "byte 0xff at offset 2 is not UTF-8" in capsys.readouterr().err


def test_flags_reach_the_model_by_the_names_of_the_library(models, model_file):
    flags = (
        "-n 9 -s 3 --temp 0.5 --top-k 4 --top-p 0.6 --min-p 0.1 --typical 0.9 --top-nsigma 2 "
        "--repeat-penalty 1.1 --repeat-last-n 32 --frequency-penalty 0.2 --presence-penalty 0.3 "
        "--dry-multiplier 0.8 --dry-base 1.5 --dry-allowed-length 3 --dry-penalty-last-n 7 "
        "--xtc-probability 0.1 --xtc-threshold 0.2 --dynatemp-range 0.4 --dynatemp-exp 1.2 "
        "--mirostat 2 --mirostat-ent 4 --mirostat-lr 0.2 --stop a -r b -l 15043+1.5 -l 2-inf"
    )
    assert main(["run", model_file, "-p", "x", *flags.split()]) == 0
    assert models[0].requests == [
        (
            "x",
            {
                "max_tokens": 9,
                "stop": ["a", "b"],
                "seed": 3,
                "temperature": 0.5,
                "top_k": 4,
                "top_p": 0.6,
                "min_p": 0.1,
                "typical_p": 0.9,
                "top_n_sigma": 2.0,
                "repeat_penalty": 1.1,
                "penalty_last_n": 32,
                "frequency_penalty": 0.2,
                "presence_penalty": 0.3,
                "dry_multiplier": 0.8,
                "dry_base": 1.5,
                "dry_allowed_length": 3,
                "dry_last_n": 7,
                "xtc_probability": 0.1,
                "xtc_threshold": 0.2,
                "dynatemp_range": 0.4,
                "dynatemp_exponent": 1.2,
                "mirostat": 2,
                "mirostat_tau": 4.0,
                "mirostat_eta": 0.2,
                "logit_bias": {15043: 1.5, 2: float("-inf")},
            },
        )
    ]


def test_what_is_not_given_is_left_to_the_model(models, model_file):
    assert main(["run", model_file, "-p", "x", "-n", "-1", "-s", "-1"]) == 0
    assert models[0].requests == [("x", {})]


def test_ignore_eos_bans_what_ends_an_answer(models, model_file):
    assert main(["run", model_file, "-p", "x", "--ignore-eos", "-l", "3+1"]) == 0
    assert models[0].requests[0][1] == {"logit_bias": {2: float("-inf"), 3: 1.0}}


def test_load_flags(models, model_file):
    flags = ["-t", "3", "-c", "99", "--backend", "native", "--kv-type", "q8_0"]
    assert main(["run", model_file, "-p", "x", *flags]) == 0
    options = models[0].load_options
    assert (options["n_threads"], options["n_ctx"], options["backend"]) == (3, 99, "native")
    assert options["n_threads_batch"] is None
    assert options["kv_type"] == "q8_0"
    assert options["speculate"] == "auto"
    assert main(["run", model_file, "-p", "x", "--no-speculate"]) == 0
    assert models[1].load_options["speculate"] is False


@pytest.mark.parametrize("flag", ["-tb", "--threads-batch"])
def test_prompts_may_have_a_thread_count_of_their_own(models, model_file, flag):
    assert main(["run", model_file, "-p", "x", "-t", "3", flag, "5"]) == 0
    options = models[0].load_options
    assert (options["n_threads"], options["n_threads_batch"]) == (3, 5)


@pytest.mark.parametrize("flag", ["--draft", "--model-draft", "-md"])
def test_a_draft_reaches_the_model_by_its_name(models, model_file, flag):
    assert main(["run", model_file, "-p", "x", flag, model_file]) == 0
    assert models[0].load_options["draft"] == model_file
    assert main(["run", model_file, "-p", "x"]) == 0
    assert models[1].load_options["draft"] is None


def test_a_draft_that_is_not_there_is_said_before_the_model_is_loaded(models, model_file, capsys):
    assert main(["run", model_file, "-p", "x", "--draft", "smolm2"]) == 3
    assert "smolm2" in capsys.readouterr().err
    assert models == []


def test_escapes_are_read_only_when_asked_for(models, model_file, capsys):
    assert main(["run", model_file, "-p", r"a\nb"]) == 0
    assert main(["run", model_file, "-e", "-p", r"a\nb\x21\\n", "--stop", r"\n"]) == 0
    assert capsys.readouterr().out == "You said: a\\nb.\nYou said: a\nb!\\n.\n"
    assert models[1].requests[0][1] == {"stop": ["\n"]}


def test_echo(models, model_file, capsys):
    assert main(["run", model_file, "-p", "x", "--echo"]) == 0
    assert capsys.readouterr().out == "xYou said: x.\n"


def test_stats_go_to_stderr(models, model_file, capsys):
    assert main(["run", model_file, "-p", "x", "--stats"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "You said: x.\n"
    assert shown.err.startswith(
        "[ prompt: 10 tokens (4 cached), 12.0 t/s | answer: 3 tokens, 34.0 t/s | first token "
    )


def test_json(models, model_file, capsys):
    assert main(["run", model_file, "-p", "x", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "You said: x."
    assert answer["finish_reason"] == "stop"
    assert answer["seed"] == 7
    assert answer["usage"] == {"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 3}


@pytest.mark.parametrize(("prompt", "code"), [("nan", 1), ("overflow", 2)])
def test_failures_of_the_model(prompt, code, models, model_file, capsys):
    assert main(["run", model_file, "-p", prompt]) == code
    assert capsys.readouterr().err.startswith("edgeinfer: error: ")
    assert models[0].closed


def test_a_spelled_bos_is_not_doubled(models, model_file):
    assert main(["run", model_file, "--raw", "-p", "\x01a"]) == 0
    assert main(["run", model_file, "-p", "\x01a"]) == 0
    assert [len(model.prompt_ids) for model in models] == [2, 3]
