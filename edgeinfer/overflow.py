"""Decide what is left out of a conversation that is longer than the context: nothing unasked.

Token ids go in, fewer come out, and how many were dropped. Knows no text.
"""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from edgeinfer.engine.handle import Handle
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sequence import Sequence, TokenSampler
from edgeinfer.errors import InvalidParameterError
from edgeinfer.request import ENDLESS, most_tokens

Overflow = Literal["error", "truncate_middle", "shift"]


def checked_overflow(overflow: str | None) -> Overflow:
    """Return what to do with too long a prompt; None is "error"."""
    for allowed in get_args(Overflow):
        if overflow == allowed or (overflow is None and allowed == "error"):
            return allowed  # type: ignore[no-any-return]
    known = ", ".join(map(repr, get_args(Overflow)))
    raise InvalidParameterError(f"overflow: found {overflow!r} (need one of {known})")


@dataclass(frozen=True, slots=True)
class Room:
    """The most tokens of a prompt that stay as they are, and the most that a cut leaves."""

    uncut: int
    cut: int


def room_of(n_ctx: int, max_tokens: int | None, overflow: Overflow) -> Room:
    """Return the room a prompt has.

    An answer of max_tokens has to find room behind it, but takes no more than half of the context;
    one without a limit is given a quarter. Where answers shift, a prompt that fits is not cut.
    """
    checked = most_tokens(max_tokens, n_ctx // 2)
    answer = n_ctx // 4 if max_tokens is None else checked
    if overflow == "error":
        return Room(ENDLESS, ENDLESS)
    cut = n_ctx - max(1, answer)
    return Room(n_ctx - 1 if overflow == "shift" else cut, cut)


def without_middle(tokens: list[int], room: Room) -> list[int]:
    """Return the first quarter of what may stay, and of the last tokens three; or all, uncut."""
    if len(tokens) <= room.uncut:
        return tokens
    n_head = room.cut // 4
    return tokens[:n_head] + tokens[len(tokens) - (room.cut - n_head) :]


class Shift:
    """Go on with answers that fill the context, behind half of the tokens.

        full      | head | oldest ........ | latest ............ |
        go on as  | head | latest ............ |    room for more    |

    The head is the beginning of the prompt, up to a quarter of the context. What is left is
    computed anew as the prompt it now is, so the rest of the answer is what the model says to it.
    """

    def __init__(self, submit: Callable[[Sequence], Handle], n_ctx: int) -> None:
        self._submit = submit
        self._n_ctx = n_ctx
        self.n_dropped = 0

    def __call__(self, ended: Sequence) -> Handle | None:
        """Return the handle of the rest, or None where the answer is over."""
        n_left = ended.max_tokens - ended.n_generated
        if ended.finish_reason != "length" or len(ended.tokens) < self._n_ctx or n_left < 1:
            return None
        n_head = min(ended.n_prompt, self._n_ctx // 4)
        n_tail = max(1, self._n_ctx // 2 - n_head)
        tokens = ended.tokens[:n_head] + ended.tokens[-n_tail:]
        n_dropped = len(ended.tokens) - len(tokens)
        if n_dropped < 1:  # a context of a few tokens
            return None
        self.n_dropped += n_dropped
        assert ended.sampler is not None
        rest = Sequence(
            tokens,
            _Later(ended.sampler, n_dropped),
            max_tokens=n_left,
            stop_ids=ended.stop_ids,
            n_logprobs=ended.n_logprobs,
            priority=ended.priority,
            deadline_s=ended.deadline_s,
            constraint=ended.constraint,
        )
        return self._submit(rest)


class _Later:
    """A sampler whose sequence stands `n_before` tokens further back than its tokens do.

    Random numbers belong to positions; counted from the new start they would come again.
    """

    def __init__(self, sampler: TokenSampler, n_before: int) -> None:
        self._sampler = sampler
        self._n_before = n_before

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        return self._sampler.sample(logits, history, position + self._n_before)

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        at = position + self._n_before
        return self._sampler.sample_with_logprobs(logits, history, at, n_top)
