"""The chat's loop and its commands, over pipes and with a screen that a test reads."""

import json
import re
from dataclasses import fields
from typing import get_args

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.cli.chat import converse
from edgeinfer.cli.chat_commands import COMMANDS, is_command
from edgeinfer.cli.chat_session import Session
from edgeinfer.cli.options import SamplingFlags
from edgeinfer.cli.progress import Line
from edgeinfer.errors import InvalidParameterError
from tests.cli.fake_model import FakeModel
from tests.cli.stdin import Stdin


class ListScreen:
    """Reads messages from a list; an exception in it is raised. Collects what is shown."""

    def __init__(self, *messages, interactive=True):
        self.interactive = interactive
        self._messages = list(messages)
        self.answers = ""
        self.notes = []

    def read(self):
        message = self._messages.pop(0) if self._messages else None
        if isinstance(message, BaseException):
            raise message
        return message

    def write(self, piece):
        self.answers += piece

    def note(self, text):
        self.notes.append(text)

    def progress(self):
        return Line()


def talk(*messages, interactive=True, **session):
    """Run a chat of these messages; return its screen and its session."""
    screen = ListScreen(*messages, interactive=interactive)
    chat = Session(FakeModel(), **session)
    converse(chat, screen)
    return screen, chat


def contents(session):
    return [turn["content"] for turn in session.conversation.turns]


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
    assert "temperature: found -1.0" in err


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


@pytest.mark.parametrize("text", ["/help", "/?", "/set a b", "/nope"])
def test_commands_are_told_from_messages(text):
    assert is_command(text)


@pytest.mark.parametrize("text", ["/etc/hosts: what is it?", " /help", "\n/help", "1/2", "/Help"])
def test_messages_that_only_look_like_commands(text):
    assert not is_command(text)


def test_help_lists_every_command():
    screen, _ = talk("/help")
    for command in COMMANDS:
        assert f"{command.name} {command.argument}".rstrip() in screen.notes[0]
        assert command.summary in screen.notes[0]


def test_unknown_command_suggests_a_similar_one():
    assert "did you mean /retry?" in talk("/retri")[0].notes[0]
    assert "/help lists them" in talk("/zzzzzz")[0].notes[0]


def test_exit_and_its_aliases_leave():
    for name in ("/exit", "/quit", "/bye"):
        assert talk(name, "unread")[0].answers == ""


def test_system_is_shown_set_and_removed():
    screen, session = talk("/system", "/system be brief", "/system", "x", '/system ""', "y")
    assert screen.notes[0].startswith("no system prompt")
    assert screen.notes[2] == "be brief"
    first, second = (messages for messages, _ in session.model.requests)
    assert first[0] == {"role": "system", "content": "be brief"}
    assert second[0]["role"] == "user"


def test_set_takes_the_names_of_the_flags_and_of_the_library():
    spellings = ["/set temp 0.5", "/set temperature=0.5", "/set --temp 0.5"]
    for text in spellings:
        assert talk(text)[1].settings == {"temperature": 0.5}
    assert talk("/set top-k 3", "/set n 9", r"/set stop \n")[1].settings == {
        "top_k": 3,
        "max_tokens": 9,
        "stop": ["\n"],
    }
    assert talk("/set n 9", "/set n -1")[1].settings == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/set temp hot", "temperature: found 'hot' (need a number)"),
        ("/set top_k 1.5", "top_k: found '1.5' (need a whole number)"),
        ("/set temp -1", "temperature: found -1.0 (need 0 or more)"),
        ("/set n -2", "max_tokens: found -2"),
        ("/set tempp 1", "no such setting"),
        ("/set temp", "no value"),
        ("/stats maybe", "found 'maybe'"),
        ("/read", "no FILE"),
        ("/read /no/such/file", "No such file"),
        ("/save", "no FILE"),
        ("/load", "no FILE"),
        ("/undo", "nothing to take back"),
        ("/retry", "no answer to replace"),
    ],
)
def test_refused_commands_change_nothing(text, message):
    screen, _ = talk("/set top_k 3", text, "settings")
    assert message in screen.notes[1]
    assert screen.answers == "{'top_k': 3}\n"


def test_clear_forgets_turns_and_keeps_the_system_prompt():
    _, session = talk("/system s", "one", "/clear", "two")
    assert [m["content"] for m in session.model.requests[-1][0]] == ["s", "two"]


def test_undo():
    assert contents(talk("one", "two", "/undo")[1]) == ["one", "You said: one."]


def test_retry_asks_the_same_question_again():
    _, session = talk("one", "/retry", "/regen 0.1")
    asked = [(messages[-1]["content"], settings) for messages, settings in session.model.requests]
    assert asked == [("one", {}), ("one", {}), ("one", {"temperature": 0.1})]
    assert contents(session) == ["one", "You said: one."]
    assert session.settings == {}


def test_retry_with_a_fixed_seed_takes_the_next_choice():
    _, session = talk("one", "/retry", "/retry", settings={"seed": 5})
    asked = [settings for _, settings in session.model.requests]
    assert asked == [{"seed": 5}, {"seed": 5, "choice": 1}, {"seed": 5, "choice": 2}]


def test_retry_of_a_greedy_answer_says_that_it_will_be_the_same():
    screen, _ = talk("one", "/retry", "/retry 0.5", settings={"temperature": 0.0})
    assert [note for note in screen.notes if "the same" in note] == screen.notes
    assert len(screen.notes) == 1


def test_set_lists_what_the_model_recommends(monkeypatch):
    monkeypatch.setattr(
        FakeModel, "sampling_defaults", type(FakeModel.sampling_defaults)(temperature=0.0)
    )
    screen, _ = talk("/set", "/set temp 0.5", "/set")
    first, _, second = screen.notes
    assert first.startswith("temperature = 0.0, recommended for this model\n")
    assert second.startswith("temperature = 0.5\n/set")


def test_failed_retry_keeps_the_answer_it_was_to_replace():
    _, session = talk("one")
    session.conversation.turns[0]["content"] = "overflow"
    converse(session, ListScreen("/retry"))
    assert contents(session) == ["overflow", "You said: one."]


def test_read_puts_a_file_before_the_next_message(tmp_path):
    (tmp_path / "a b.txt").write_text("file", encoding="utf-8")
    screen, session = talk(f'/read "{tmp_path}/a b.txt"', "what?")
    assert screen.notes == ["a b.txt: 4 tokens go before your next message"]
    assert contents(session)[0] == "file\n\nwhat?"


def test_save_and_load_bring_conversation_and_settings_back(tmp_path):
    path = tmp_path / "chat.json"
    talk("/set top_k 3", "one", f"/save {path}")
    _, session = talk(f"/load {path}", "settings")
    assert contents(session) == ["one", "You said: one.", "settings", "{'top_k': 3}"]


@pytest.mark.parametrize("settings", [{"tempp": 1}, {"top_k": "x"}, {"top_k": True}, {"n": 1.5}])
def test_load_refuses_settings_it_does_not_know(settings, tmp_path):
    path = tmp_path / "chat.json"
    content = {"format": "edgeinfer-chat", "version": 1, "system": None, "turns": []}
    path.write_text(json.dumps({**content, "settings": settings}), encoding="utf-8")
    screen, session = talk("one", f"/load {path}")
    assert screen.notes[0].startswith("error: ")
    assert contents(session) == ["one", "You said: one."]


def test_tokens_of_the_context_and_of_a_text():
    screen, _ = talk("/tokens", "one", "/tokens", "/tokens ab")
    assert screen.notes[0] == "0 of 2,048 tokens of the context are used (0%)"
    assert screen.notes[1] == "34 of 2,048 tokens of the context are used (2%)"
    assert screen.notes[2] == "2 tokens: 97:'a' 98:'b'"


def test_stats_shows_the_last_and_turns_the_line_on_and_off():
    screen, _ = talk("/stats", "one", "/stats", "/stats on", "two", "/stats off", "three")
    assert screen.notes[0] == "no answer yet"
    lines = [note for note in screen.notes if note.startswith("[ prompt:")]
    assert len(lines) == 2


def test_every_setting_is_an_argument_of_the_library():
    import inspect

    llm = pytest.importorskip("edgeinfer.llm")
    arguments = set(inspect.signature(llm.Model.stream_chat).parameters)
    names = set(Session(FakeModel()).setting_names())
    assert names <= arguments
    assert arguments - names == {
        "self",
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


def test_overflow_is_a_setting_and_what_was_left_out_is_said():
    screen, session = talk("/set overflow truncate_middle", "settings", "dropped")
    assert contents(session)[1] == "{'overflow': 'truncate_middle'}"
    assert screen.notes[-1] == "[1,234 tokens left out: the context is full]"
    session.replace_settings({"overflow": "shift"})
    for wrong in ("cut", 5):
        with pytest.raises(InvalidParameterError):
            session.replace_settings({"overflow": wrong})
    assert session.settings == {"overflow": "shift"}


def test_unknown_setting_in_the_session_is_an_error():
    with pytest.raises(InvalidParameterError):
        Session(FakeModel()).set("nope", "1")
