"""The slash commands of a chat: what each changes, says and refuses."""

import json

import pytest

from edgeinfer.cli.chat import converse
from edgeinfer.cli.chat_commands import COMMANDS, is_command
from edgeinfer.cli.chat_session import Session
from edgeinfer.errors import InvalidParameterError
from tests.cli.chatting import ListScreen, contents, talk
from tests.cli.fake_model import FakeModel


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
        ("/save a.session", "no conversation to keep"),
        ("/load", "no FILE"),
        ("/load no.session", "no.session: No such file"),
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


def test_save_and_load_of_a_session_keep_what_was_computed(tmp_path):
    path = tmp_path / "chat.session"
    kept, _ = talk("/system be kind", "one", f"/save {path}")
    screen, session = talk("/set top_k 3", f"/load {path}", "settings")
    assert kept.notes[-1] == "saved 2 messages and the state of 49 tokens"
    assert screen.notes[-1] == "loaded 2 messages; 49 tokens need no reading"
    assert session.conversation.system == "be kind"
    assert contents(session) == ["one", "You said: one.", "settings", "{'top_k': 3}"]


@pytest.mark.parametrize(
    "message", [{"role": "tool", "content": "a"}, {"role": "user", "content": []}]
)
def test_a_session_of_other_than_texts_is_refused(message, tmp_path):
    path = tmp_path / "chat.session"
    FakeModel().save_session(path, [{"role": "user", "content": "a"}, message])
    screen, session = talk("one", f"/load {path}")
    assert f"{path}: messages[1]: found role" in screen.notes[-1]
    assert contents(session) == ["one", "You said: one."]


def test_a_session_of_a_text_is_no_chat(tmp_path):
    FakeModel().save_session(tmp_path / "text.session", [])
    screen, session = talk("one", f"/load {tmp_path}/text.session")
    assert "holds a text, no messages" in screen.notes[-1]
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
