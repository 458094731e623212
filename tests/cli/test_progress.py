"""The words of a progress line."""

import time

import pytest

from edgeinfer.cli.progress import Line, amount, describe, duration


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (98_362_432, "B", "98.4 MB"),
        (7.5e9, "B", "7.5 GB"),
        (1955, "tokens", "1,955 tokens"),
    ],
)
def test_amounts(value, unit, text):
    assert amount(value, unit) == text


def test_bar_percentage_and_time_left():
    assert describe("reading", 500, 2000, "tokens", 10.0) == (
        "reading [#####               ]  25% (500 of 2,000 tokens, 30 s left)"
    )


def test_more_than_all_is_all():
    assert "100%" in describe("x", 12, 10, "", 1.0)


def test_unknown_total_shows_the_amount_only():
    assert describe("waiting", 5, 0, "B", 1.0) == "waiting 5 B"


def test_durations():
    assert (duration(59.4), duration(185)) == ("59 s", "3:05")


def test_a_long_first_step_is_shown_without_another_update(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    line = Line(show_after_s=0.01)
    line.update("reading", 0, 37, "tokens")
    shown = ""
    until_s = time.monotonic() + 20
    while "0 of 37 tokens" not in shown and time.monotonic() < until_s:
        time.sleep(0.01)
        shown += capsys.readouterr().err
    line.clear()
    assert "0 of 37 tokens" in shown
    assert capsys.readouterr().err.endswith("\r\x1b[K")


def test_what_is_done_soon_draws_nothing(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    line = Line(show_after_s=60)
    line.update("reading", 0, 37, "tokens")
    line.update("reading", 37, 37, "tokens")
    line.clear()
    assert capsys.readouterr().err == ""


def test_no_terminal_no_line(capsys):
    line = Line(show_after_s=0)
    line.update("reading", 1, 2)
    line.clear()
    assert capsys.readouterr().err == ""
