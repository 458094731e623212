"""The chat's loop, over pipes and with a screen that a test reads."""

import re
from dataclasses import fields
from typing import get_args

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.cli.chat import converse
from edgeinfer.cli.chat_session import Session
from edgeinfer.cli.options import SamplingFlags
from tests.cli.chatting import ListScreen, contents, talk
from tests.cli.fake_model import FakeModel
from tests.cli.stdin import Stdin


@pytest.fixture
def chat_process(models, model_file, monkeypatch, capsys):
    """Run `edgeinfer chat` over pipes; returns code, stdout and stderr."""

    def run(piped: bytes, *args):
        monkeypatch.setattr("sys.stdin", Stdin(piped))
        code = main(["chat", model_file, *args])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_piped_message_prints_the_answer_only(chat_process):
    assert chat_process(b"hi there\n") == (0, "You said: hi there.\n", "")


def test_piped_lines_are_one_conversation(chat_process, models):
    assert chat_process(b"one\n\ntwo") == (0, "You said: one.\nYou said: two.\n", "")
    roles = [message["role"] for message in models[0].requests[-1][0]]
    assert roles == ["user", "assistant", "user"]
    assert models[0].closed


def test_empty_input_ends_cleanly(chat_process):
    assert chat_process(b"") == (0, "", "")


def test_invalid_utf8_is_answered_with_a_warning(chat_process):
    code, out, err = chat_process(b"a\xffb\n")
    assert (code, out) == (0, "You said: a\ufffdb.\n")
    assert err.startswith("edgeinfer: warning: ")


def test_piped_commands_speak_on_stderr(chat_process):
    code, out, err = chat_process(b"/tokens\nhi\n/exit\nunread\n", "--stats")
    assert (code, out) == (0, "You said: hi.\n")
    assert err.startswith("0 of 2,048 tokens")
    assert "[ prompt: 10 tokens (4 cached), 12.0 t/s | answer: 3 tokens, 34.0 t/s |" in err


def test_piped_error_ends_with_its_code(chat_process):
    code, out, err = chat_process(b"hi\n/nope\nunread\n")
    assert (code, out) == (2, "You said: hi.\n")
    assert err.startswith("edgeinfer: error: /nope: no such command")


def test_first_message_and_single_turn(chat_process, models):
    assert chat_process(b"unread\n", "-p", "hello", "-st")[1] == "You said: hello.\n"
    assert chat_process(b"more\n", "-p", "hello")[1] == "You said: hello.\nYou said: more.\n"


def test_system_prompt_flag_and_file(chat_process, models, tmp_path):
    (tmp_path / "system.txt").write_text("be kind", encoding="utf-8")
    assert chat_process(b"x\n", "-sys", "be brief")[0] == 0
    assert chat_process(b"x\n", "-sysf", str(tmp_path / "system.txt"))[0] == 0
    found = [model.requests[0][0][0]["content"] for model in models]
    assert found == ["be brief", "be kind"]
    assert chat_process(b"x\n", "-sys", "a", "-sysf", "b")[0] == 2


def test_sampling_flags_hold_for_every_answer(chat_process):
    out = chat_process(b"settings\n/set top_k default\nsettings\n", "--temp", "0", "--top-k", "5")[
        1
    ]
    assert out == "{'temperature': 0.0, 'top_k': 5}\n{'temperature': 0.0}\n"


def test_range_of_a_sampling_flag_is_checked_at_once(chat_process):
    code, out, err = chat_process(b"hi\n", "--temp", "-1")
    assert (code, out) == (2, "")
    assert "--temp: found -1.0" in err


def test_model_without_chat_template(monkeypatch, model_file, capsys):
    from tests.cli import fake_model

    monkeypatch.setitem(__import__("sys").modules, "edgeinfer.model", None)
    fake_model.install(chat_template=None)
    monkeypatch.setattr("sys.stdin", Stdin(b"hi\n"))
    assert main(["chat", model_file]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no chat template" in shown.err
    assert f"edgeinfer run {model_file} -p TEXT" in shown.err


def test_default_model_is_smollm2(models, monkeypatch, model_file, capsys):
    asked = []
    monkeypatch.setattr(
        "edgeinfer.loader.resolve.resolve",
        lambda name, *, progress=None: asked.append(name) or model_file,
    )
    monkeypatch.setattr("sys.stdin", Stdin(b"hi\n"))
    assert main(["chat"]) == 0
    assert asked == ["smollm2"]
    assert capsys.readouterr().out == "You said: hi.\n"


def test_failed_turn_leaves_the_conversation_and_the_chat_goes_on():
    screen, session = talk("one", "overflow", "nan", "two")
    assert contents(session) == ["one", "You said: one.", "two", "You said: two."]
    assert [note[:14] for note in screen.notes] == ["error: prompt:", "error: logits:"]


def test_interrupt_at_the_prompt_leaves():
    with pytest.raises(KeyboardInterrupt):
        talk("one", KeyboardInterrupt())


def test_interrupt_before_the_stream_stands_takes_the_question_back():
    session = Session(FakeModel())

    def interrupted(*args, **settings):
        raise KeyboardInterrupt

    session.model.stream_chat = interrupted
    screen = ListScreen("one")
    converse(session, screen)
    assert screen.notes == ["error: stopped; the question is taken back"]
    assert contents(session) == []
    with pytest.raises(KeyboardInterrupt):
        converse(session, ListScreen("one", interactive=False))


def test_empty_answer_takes_the_question_back():
    screen, session = talk("silent", "one")
    assert contents(session) == ["one", "You said: one."]
    assert "taken back" in screen.notes[0]


def test_cut_answer_is_kept_and_said_to_be_cut():
    screen, session = talk("cut")
    assert contents(session) == ["cut", "You said: cut."]
    assert screen.notes == ["[cut after 3 tokens: -n or the context ends here]"]


def test_every_setting_is_an_argument_of_the_library():
    import inspect

    from edgeinfer.request import FORMS

    llm = pytest.importorskip("edgeinfer.llm")
    arguments = set(inspect.signature(llm.Model.stream_chat).parameters)
    names = set(Session(FakeModel()).setting_names())
    assert names <= arguments
    assert arguments - names == {
        "self",
        *FORMS,  # flags and no settings
        "choice",
        "messages",
        "logit_bias",
        "logits_processor",
        "logprobs",
        "priority",
        "progress",
        "template",
        "timeout_s",
        "tools",
        "template_variables",
    }


def test_help_states_the_defaults_of_the_library():
    from edgeinfer.engine.sampling import SamplingParams

    params = SamplingParams()
    stated = {}
    for field in fields(SamplingFlags):
        option = get_args(field.type)[1]
        found = re.search(r"[Dd]efault (-?[\d.]*\d)|(-?[\d.]+) is off \(default\)", option.help)
        if found:
            stated[field.name] = float(found[1] or found[2])
    assert len(stated) >= 18
    assert stated == {name: getattr(params, name) for name in stated}


def test_template_variables(chat_process, models):
    assert chat_process(b"x\n", "--chat-template-kwargs", '{"enable_thinking": false}')[0] == 0
    assert models[0].requests[0][1] == {"template_variables": {"enable_thinking": False}}
    for wrong in ("{", "[1]"):
        assert chat_process(b"x\n", "--chat-template-kwargs", wrong)[0] == 2
