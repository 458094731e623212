"""Which typed lines make one message."""

import io

import pytest

from edgeinfer.cli.chat_input import is_complete, messages_from, unfold


@pytest.mark.parametrize(
    ("typed", "complete"),
    [
        ("hello", True),
        ("hello\\", False),
        ("hello\\\nworld", True),
        ('"""', False),
        ('"""a', False),
        ('"""a\nb"""', True),
        ('"""a\nb""" ', True),
        ('  """a\\\n', False),
        ('say """ twice', True),
        ("pasted\ntext", True),
        ("", True),
    ],
)
def test_enter_sends_or_continues(typed, complete):
    assert is_complete(typed) is complete


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("hello  ", "hello"),
        (" /not a command", " /not a command"),
        ("a\\\nb\\\nc", "a\nb\nc"),
        ("end\\", "end"),
        ('"""a\\\nb"""', "a\\\nb"),
        ('"""\n  code\n"""', "  code"),
        ('"""/help"""', "\n/help"),
        ('""""""', ""),
    ],
)
def test_message_of_what_was_typed(typed, message):
    assert unfold(typed) == message


def test_piped_lines_are_messages_unless_they_continue():
    piped = io.BytesIO(b'one\r\ntwo \\\nlines\n"""\nthree\n  four\n"""\nlast')
    assert list(messages_from(piped)) == ["one", "two \nlines", "three\n  four", "last"]


def test_open_fence_at_the_end_of_input_is_sent():
    assert list(messages_from(io.BytesIO(b'"""a\nb'))) == ["a\nb"]


def test_bytes_that_are_not_utf8_are_replaced_with_one_warning(capsys):
    assert list(messages_from(io.BytesIO(b"a\xff\n\xfe"))) == ["a\ufffd", "\ufffd"]
    assert capsys.readouterr().err.count("warning") == 1


def test_replacement_character_in_the_input_is_no_warning(capsys):
    assert list(messages_from(io.BytesIO("\ufffd".encode()))) == ["\ufffd"]
    assert capsys.readouterr().err == ""
