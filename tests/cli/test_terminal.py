"""The chat in a real terminal: keys in, screen out, signals and exit codes."""

import os
import re
import select
import subprocess
import sys
import time

import pytest

pty = pytest.importorskip("pty")

CTRL_C, CTRL_D, ENTER, TAB, ESCAPE, UP = b"\x03", b"\x04", b"\r", b"\t", b"\x1b", b"\x1b[A"
PROMPT = "\x1b[?2004h"  # bracketed paste goes on where a prompt is shown
WAIT_S = 20


class Terminal:
    """A process on a pseudo-terminal; `shown` is all it has written."""

    def __init__(self, *args, home, **environment):
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.fake_model", *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={
                **os.environ,
                "TERM": "xterm",
                "TAKE_TERMINAL": "1",
                "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody here answers where the cursor is
                "HOME": str(home),
                "XDG_STATE_HOME": str(home),
                **environment,
            },
        )
        os.close(slave)
        self.shown = ""
        self._unread = ""

    def wait_for(self, text):
        """Read until `text` is shown; return what was shown before it and go on after it."""
        until_s = time.monotonic() + WAIT_S
        while text not in self._unread:
            left_s = max(0.0, until_s - time.monotonic())
            ready, _, _ = select.select([self._master], [], [], left_s)
            assert ready, f"not shown: {text!r} in {self._unread!r}"
            self._unread += os.read(self._master, 65536).decode("utf-8", "replace")
        before, _, self._unread = self._unread.partition(text)
        self.shown += before + text
        return before

    def type(self, *keys):
        for key in keys:
            os.write(self._master, key if isinstance(key, bytes) else key.encode())

    def leave(self):
        """Wait for the end of the process and return its exit code."""
        self.shown += self._unread
        try:
            while chunk := os.read(self._master, 65536):
                self.shown += chunk.decode("utf-8", "replace")
        except OSError:  # how Linux reports that the other end is closed
            pass
        return self._process.wait(WAIT_S)

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(model_file, tmp_path):
    opened = []

    def start(*args, command="chat", **environment):
        opened.append(Terminal(command, model_file, *args, home=tmp_path, **environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_ctrl_c_stops_the_answer_keeps_it_and_then_leaves_with_130(terminal):
    chat = terminal("--stats")
    chat.wait_for("/help lists the commands")
    chat.wait_for(PROMPT)
    chat.type("endless", ENTER)
    chat.wait_for("la la la")
    chat.type(CTRL_C)
    chat.wait_for("[stopped]")
    chat.wait_for(PROMPT)
    chat.type("/tokens", ENTER)
    # 6 + 7 for the question, 11 for <assistant>, and at least "la la la".
    used = re.search(r"[0-9]+$", chat.wait_for(" of 2,048 tokens of the context"))
    assert int(used[0]) > 6 + 7 + 11 + 8
    chat.wait_for(PROMPT)
    chat.type(CTRL_C)
    assert chat.leave() == 130
    assert "Traceback" not in chat.shown


def test_ctrl_d_leaves_with_0(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("hi", ENTER)
    chat.wait_for("You said: hi.")
    chat.wait_for(PROMPT)
    chat.type(CTRL_D)
    assert chat.leave() == 0


def test_ctrl_c_on_a_half_typed_line_clears_it(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("half")
    chat.wait_for("half")
    chat.type(CTRL_C, "whole", ENTER)
    chat.wait_for("You said: whole.")


def test_lines_continue_after_a_backslash_and_inside_a_fence(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("one \\", ENTER, "two", ENTER)
    chat.wait_for("You said: one \r\ntwo.")
    chat.wait_for(PROMPT)
    chat.type('"""three', ENTER, 'four"""', ENTER)
    chat.wait_for("You said: three\r\nfour.")
    chat.wait_for(PROMPT)
    chat.type("five", ESCAPE + ENTER, "six", ENTER)
    chat.wait_for("You said: five\r\nsix.")


def test_pasted_lines_are_one_message(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type(b"\x1b[200~one\ntwo\n\x1b[201~", ENTER)
    chat.wait_for("You said: one\r\ntwo.")


def test_tab_completes_commands(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("/tok", TAB)
    chat.wait_for("ens")
    chat.type(ENTER)
    chat.wait_for("tokens of the context are used")


def test_history_is_kept_for_the_next_chat_and_private(terminal, tmp_path):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("remember me", ENTER)
    chat.wait_for("You said: remember me.")
    chat.wait_for(PROMPT)
    chat.type(CTRL_D)
    assert chat.leave() == 0
    history = tmp_path / "edgeinfer" / "chat_history"
    assert history.stat().st_mode & 0o777 == 0o600
    again = terminal()
    again.wait_for(PROMPT)
    again.type(UP, ENTER)
    again.wait_for("You said: remember me.")


def test_no_history_writes_none(terminal, tmp_path):
    chat = terminal("--no-history")
    chat.wait_for(PROMPT)
    chat.type("forget me", ENTER)
    chat.wait_for("You said: forget me.")
    assert not (tmp_path / "edgeinfer").exists()


def test_answer_cannot_act_on_the_terminal(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("escape", ENTER)
    chat.wait_for("red \\x1b[31malert")
    run = terminal("-p", "escape", command="run")
    run.wait_for("red \\x1b[31malert")


def test_error_is_shown_and_the_chat_goes_on(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("overflow", ENTER)
    chat.wait_for("error: prompt: found 9999 tokens")
    chat.wait_for(PROMPT)
    chat.type("hi", ENTER)
    chat.wait_for("You said: hi.")


def test_dumb_terminal_is_served_without_line_editing(terminal):
    chat = terminal(TERM="dumb")
    chat.wait_for("> ")
    chat.type("hi\n")
    chat.wait_for("You said: hi.")
    chat.type(CTRL_D)
    assert chat.leave() == 0


def test_long_prompt_shows_progress_and_clears_it(terminal):
    chat = terminal()
    chat.wait_for(PROMPT)
    chat.type("long", ENTER)
    chat.wait_for("reading [")
    chat.wait_for("\x1b[K")
    chat.wait_for("You said: long.")
