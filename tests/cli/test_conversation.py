"""Conversations: order, undo, and files that survive what is wrong with them."""

import json

import pytest

from edgeinfer.cli.conversation import Conversation, load, save
from edgeinfer.errors import InvalidParameterError, ResourceError


def talked():
    conversation = Conversation("be brief")
    conversation.ask("one")
    conversation.answer("1")
    conversation.ask("zwei é")
    conversation.answer("2")
    return conversation


def test_messages_are_system_then_turns():
    assert talked().messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "zwei é"},
        {"role": "assistant", "content": "2"},
    ]


def test_undo_takes_back_the_last_question_and_its_answer():
    conversation = talked()
    assert conversation.undo()
    assert [turn["content"] for turn in conversation.turns] == ["one", "1"]
    assert conversation.undo()
    assert not conversation.undo()


def test_answer_is_taken_back_only_when_there_is_one():
    conversation = talked()
    assert conversation.take_back_answer()
    assert conversation.turns[-1]["content"] == "zwei é"
    assert not conversation.take_back_answer()
    assert not Conversation().take_back_answer()


def test_pending_files_go_before_the_next_message_only():
    conversation = Conversation()
    conversation.pending.append("file")
    conversation.ask("question")
    conversation.ask("more")
    assert [turn["content"] for turn in conversation.turns] == ["file\n\nquestion", "more"]


def test_saved_conversation_comes_back(tmp_path):
    save(talked(), tmp_path / "a.json", {"top_k": 3})
    loaded, settings = load(tmp_path / "a.json")
    assert loaded == talked()
    assert settings == {"top_k": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_saving_replaces_a_saved_conversation_and_nothing_else(tmp_path):
    save(talked(), tmp_path / "a.json", {})
    save(Conversation(), tmp_path / "a.json", {})
    assert load(tmp_path / "a.json")[0] == Conversation()
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(InvalidParameterError, match="exists and is no saved conversation"):
        save(talked(), tmp_path / "thesis.txt", {})
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def test_saving_into_no_folder(tmp_path):
    with pytest.raises(InvalidParameterError, match="no such folder"):
        save(talked(), tmp_path / "no" / "a.json", {})


def test_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        save(talked(), tmp_path / "a.json", {})
    assert list(tmp_path.iterdir()) == []


GOOD = {"format": "edgeinfer-chat", "version": 1, "system": None, "turns": [], "settings": {}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "no saved conversation"),
        (json.dumps({**GOOD, "format": "x"}).encode(), "no saved conversation"),
        (json.dumps({**GOOD, "version": 2}).encode(), "version: found 2"),
        (json.dumps({**GOOD, "system": 5}).encode(), "system: found 5"),
        (json.dumps({**GOOD, "turns": {}}).encode(), "turns"),
        (json.dumps({**GOOD, "turns": [{"role": "tool", "content": ""}]}).encode(), "'tool'"),
        (json.dumps({**GOOD, "turns": [{"role": "user", "content": 1}]}).encode(), r"turns\[0\]"),
        (json.dumps({**GOOD, "turns": ["x"]}).encode(), r"turns\[0\]"),
        (json.dumps({**GOOD, "settings": []}).encode(), "settings"),
    ],
)
def test_damaged_files_are_refused_by_name(content, message, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InvalidParameterError, match=message):
        load(tmp_path / "a.json")


def test_missing_file(tmp_path):
    with pytest.raises(InvalidParameterError, match="No such file"):
        load(tmp_path / "none.json")
