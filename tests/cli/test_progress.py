"""The words of a progress line."""

import pytest

from edgeinfer.cli.progress import amount, describe, duration


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
        "reading [#####               ]  25% (500 tokens of 2,000 tokens, 30 s left)"
    )


def test_more_than_all_is_all():
    assert "100%" in describe("x", 12, 10, "", 1.0)


def test_unknown_total_shows_the_amount_only():
    assert describe("waiting", 5, 0, "B", 1.0) == "waiting 5 B"


def test_durations():
    assert (duration(59.4), duration(185)) == ("59 s", "3:05")
