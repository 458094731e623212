"""Exit codes, error lines and the weight of `edgeinfer --help`."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from edgeinfer import errors
from edgeinfer.cli.__main__ import describe, main

CLI = [sys.executable, "-m", "edgeinfer.cli"]
FAKE_CLI = [sys.executable, "-m", "tests.cli.fake_model"]
HEAVY = ("numpy", "rich", "prompt_toolkit", "jinja2", "tokenizers", "logging", "edgeinfer.model")


def run_process(command, *args, **options):
    return subprocess.run(
        [*command, *args], capture_output=True, text=True, timeout=60, check=False, **options
    )


def test_help_names_every_command_and_imports_nothing_heavy():
    probe = (
        "import sys; from edgeinfer.cli.__main__ import main; code = main(['--help']);"
        f"print('loaded', [name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    done = run_process([sys.executable, "-c", probe])
    assert done.returncode == 0
    for command in ("chat", "run", "pull", "inspect", "bench", "doctor"):
        assert f"\n  {command} " in done.stdout
    assert done.stdout.endswith("loaded []\n")


@pytest.mark.parametrize("command", ["chat", "run", "pull", "inspect", "bench", "doctor"])
def test_help_of_each_command(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"Usage: edgeinfer {command}" in capsys.readouterr().out


def test_no_arguments_show_the_help(capsys):
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_version(capsys):
    import edgeinfer

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"edgeinfer {edgeinfer.__version__}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["chta"], "no such command 'chta'; did you mean 'chat'?"),
        (["model.gguf"], "did you mean 'edgeinfer chat model.gguf'?"),
        (["zzz"], "choose from chat, run"),
        (["run", "--nope"], "--nope"),
        (["run", "x", "-n", "many"], "'many'"),
        (["inspect"], "no MODEL"),
        (["inspect", "a.gguf", "-m", "b.gguf"], "two models"),
        (["bench", "-p", "x"], "-p: found 'x'"),
        (["bench", "-p", "0", "-n", "0"], "nothing to measure"),
        (["run", "x", "-p", "a", "-l", "5"], "--logit-bias: found '5'"),
    ],
)
def test_usage_errors_are_one_line_and_code_2(args, message, capsys, models):
    assert main(args) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("edgeinfer: error: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ModelFormatError("x"), 3),
        (errors.UnsupportedModelError("x"), 3),
        (errors.TemplateError("x"), 3),
        (errors.InvalidParameterError("x"), 2),
        (errors.ResourceError("x"), 4),
        (errors.BackendError("x"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 4),
        (OSError(errno.EIO, "Input/output error"), 1),
        (MemoryError(), 4),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_exit_codes(error, code):
    assert describe(error)[1] == code


def test_error_text_stays_on_one_line_and_cannot_act_on_the_terminal():
    message, _ = describe(errors.ModelFormatError("a\nb\x1b[31m\x07"))
    assert message == "a b\\x1b[31m\\x07"


def test_missing_model_is_code_3(capsys):
    assert main(["inspect", "/no/such/model.gguf"]) == 3
    assert capsys.readouterr().err.startswith("edgeinfer: error: /no/such/model.gguf")


@pytest.mark.parametrize("args", [["--debug", "inspect"], ["inspect", "--debug"]])
def test_traceback_only_with_debug(args, capsys):
    assert main([*args, "/no/such/model.gguf"]) == 3
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.splitlines()[-1].startswith("edgeinfer: error: ")


def test_closed_stdout_is_quiet(model_file):
    with subprocess.Popen(
        [*FAKE_CLI, "run", model_file, "-p", "endless"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(3) == b"la "
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_run_quietly(sent, code, model_file):
    with subprocess.Popen(
        [*FAKE_CLI, "run", model_file, "-p", "endless"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(3) == b"la "
        process.send_signal(sent)
        _, shown = process.communicate(timeout=30)
        assert process.returncode == code
        assert shown == b""


def test_output_encoding_without_a_character_does_not_end_the_answer(model_file):
    done = subprocess.run(
        [*FAKE_CLI, "run", model_file, "-p", "é→"],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.stdout == "You said: é?.\n".encode("latin-1")


def test_module_runs_as_a_script():
    done = run_process(CLI, "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("edgeinfer ")
