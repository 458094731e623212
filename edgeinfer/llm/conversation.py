"""Shorten a conversation until its layout fits, by whole turns."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from typing import Any

from edgeinfer.errors import ContextOverflowError
from edgeinfer.overflow import Room

Messages = Ids[Mapping[str, Any]]
SYSTEM = ("system", "developer")


def fit_messages(
    messages: Messages, lay_out: Callable[[Messages], list[int]], room: Room
) -> tuple[list[int], int]:
    """Return the tokens of a conversation without as many of its oldest turns as have to go.

    What comes first with a system role stays, and so does the last turn: a turn begins with a
    message of the user. Returns the tokens, and how many fewer they are than those of all messages.

    Raises ContextOverflowError where the last turn alone is too long.
    """
    whole = lay_out(messages)
    if len(whole) <= room.uncut:
        return whole, 0
    others = (i for i, m in enumerate(messages) if m.get("role") not in SYSTEM)
    n_system = next(others, len(messages))
    turns = [i for i, m in enumerate(messages) if i > n_system and m.get("role") == "user"]

    def without(n_turns: int) -> list[int]:
        return lay_out([*messages[:n_system], *messages[turns[n_turns] :]])

    n_turns = bisect_left(range(len(turns)), True, key=lambda n: len(without(n)) <= room.cut)
    if n_turns < len(turns):
        tokens = without(n_turns)
        return tokens, len(whole) - len(tokens)
    least = len(without(len(turns) - 1)) if turns else len(whole)
    raise ContextOverflowError(
        f"messages: found {least} tokens in the last turn (need at most {room.cut}, so that "
        "an answer has room); shorten it, or load the model with a larger n_ctx"
    )
