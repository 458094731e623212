"""Define Sequence: one request's tokens and how far the model has come with them."""

from collections.abc import Sequence as Ids
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.state import NO_SNAPSHOT

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


class TokenSampler(Protocol):
    """What a sequence needs of `sampler.Sampler`."""

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        """Choose the token at `position`, after `history` (prompt and answer so far)."""

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        """Choose the same token, and report how likely it and the `n_top` likeliest are."""


class Constraint(Protocol):
    """Which ids may come next in one answer, as far as it has come; nothing is ever taken back."""

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete, and nothing can follow."""

    def allowed(self) -> npt.NDArray[np.uint8]:
        """Return which ids may come next, a bit each, the lowest first; raises where none may."""

    def accept(self, token: int) -> None:
        """Take the id that has come, one of those allowed."""


class Sequence:
    """The ids of prompt and answer, the pages that hold their keys and values, and the limits.

        tokens     | prompt ............................ | answer ....... |
        n_cached   | found in the prefix cache |
        n_computed | ................................ |                     grows by steps
        pages      |    page 7    |    page 3    |    page 9    |           room for n_computed
        snapshot                                    ^ state 5             in hybrids, at n_computed
        keys       |    a1..      |    f0..      |                          of whole pages

    Nothing says whether a sequence reads its prompt or writes its answer: computed tokens have to
    catch up with tokens, and a sequence that has caught up is given its next one. One that lost
    its pages to others has computed nothing, and catches up again.

    `rows_from`: the first token whose row of logits is wanted, and those of all after it; None
    wants no rows but those that the next tokens are chosen from. `hidden`: those rows are wanted
    as the head reads them, not as logits.

    `priority`: a higher one goes first. `deadline_s`: when to end it, by time.monotonic().
    `constraint`: what the sampler keeps to; where it is at its end, so is the sequence.
    """

    __slots__ = (
        "arrival",
        "constraint",
        "deadline_s",
        "error",
        "finish_reason",
        "generate_s",
        "hidden",
        "kept_states",
        "keys",
        "max_tokens",
        "n_accepted",
        "n_cached",
        "n_chosen",
        "n_computed",
        "n_guessed",
        "n_logprobs",
        "n_passed_over",
        "n_prompt",
        "n_pruned",
        "n_reached",
        "n_told",
        "pages",
        "paused",
        "priority",
        "prompt_s",
        "rows_from",
        "sampler",
        "saves",
        "snapshot",
        "stop_id",
        "stop_ids",
        "tokens",
    )

    def __init__(
        self,
        tokens: Ids[int],
        sampler: TokenSampler | None,
        *,
        max_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        n_logprobs: int | None = None,
        rows_from: int | None = None,
        hidden: bool = False,
        priority: int = 0,
        deadline_s: float | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        assert sampler is not None or max_tokens == 0
        self.tokens = list(tokens)
        self.n_prompt = len(self.tokens)
        self.sampler = sampler
        self.max_tokens = max_tokens
        self.stop_ids = stop_ids
        self.n_logprobs = n_logprobs
        self.rows_from = rows_from
        self.hidden = hidden
        self.priority = priority
        self.deadline_s = deadline_s
        self.constraint = constraint
        self.arrival = 0
        self.pages: list[int] = []
        self.snapshot = NO_SNAPSHOT
        self.saves: dict[int, int] = {}  # what the step writes: after so many tokens, where to
        self.kept_states: list[int] = []  # snapshots of its own that others may start from
        self.keys: list[bytes] = []
        self.n_pruned = 0  # leading pages that no window reaches
        self.n_passed_over = 0  # steps in a row
        self.n_told = -1  # tokens of the prompt that were reported as ready
        self.n_cached = 0
        self.n_computed = 0
        self.n_reached = 0  # most tokens that were ever computed
        self.paused = False
        self.finish_reason: FinishReason | None = None
        self.stop_id: int | None = None
        self.error: BaseException | None = None
        self.prompt_s = 0.0
        self.generate_s = 0.0
        self.n_chosen = 0  # tokens of the answer, and the one that ended it
        self.n_guessed = 0  # tokens that were computed before it was known that they come
        self.n_accepted = 0  # of them, those that came

    @property
    def n_due(self) -> int:
        """Tokens whose keys and values are still to be computed."""
        return len(self.tokens) - self.n_computed

    @property
    def claimable(self) -> Ids[int]:
        """The tokens of which all but the last may be had from others, who computed the same."""
        return self.tokens if self.rows_from is None else self.tokens[: self.rows_from + 1]

    @property
    def n_generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.n_prompt
