"""Send many texts once through the model, as many at a time as fill its steps; no text, no answer.

Each is a sequence of the engine's, so others' requests run beside them, and each gets the bits it
would get alone.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.engine import events
from edgeinfer.engine.handle import Handle
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import CancelledError
from edgeinfer.llm.vectors import Rows

TOKENS_UNDER_WAY = 2048  # a few steps' worth
MOST_UNDER_WAY = 256  # texts
Tokens = npt.NDArray[np.int32]
TextsProgress = Callable[[int, int], None]  # tokens of the texts that are done, of all


@dataclass(slots=True, eq=False)
class Pass:
    """One text's tokens, int32, and what is made of their rows.

    There may be very many: ids as Python's integers, and a sequence, each has only on its way.
    """

    tokens: Tokens
    rows: Rows

    def take(self, event: events.Event) -> None:
        """Use what has come."""
        if isinstance(event, events.Rows):
            self.rows.add(event.rows)


class Passes:
    """Passes on their way, the shortest first: those of a length leave a step together."""

    def __init__(
        self,
        passes: Ids[Pass],
        start: Callable[[Pass, float | None], Handle],
        *,
        timeout_s: float | None = None,
        progress: TextsProgress | None = None,
    ) -> None:
        """Start each with `start`, by its deadline; end all that is not done after `timeout_s`."""
        self._waiting = deque(sorted(passes, key=lambda one: len(one.tokens)))
        self._under_way: deque[tuple[Pass, Handle]] = deque()
        self._start = start
        self._timeout_s = timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._progress = progress
        self._n_texts = len(passes)
        self._n_total = sum(len(one.tokens) for one in passes)
        self._n_done = 0

    def run(self) -> None:
        """Read all to their ends. Raises what ended one, CancelledError where time was up."""
        try:
            for one, handle in self._started():
                for event in handle:
                    one.take(event)
                self._ended(handle.sequence)
        finally:
            self.cancel()

    async def arun(self) -> None:
        """Do the same on an event loop; cancelling the task stops the model."""
        try:
            for one, handle in self._started():
                async for event in handle:
                    one.take(event)
                self._ended(handle.sequence)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """End what is under way."""
        while self._under_way:
            self._under_way.popleft()[1].cancel()

    def _started(self) -> Iterator[tuple[Pass, Handle]]:
        """Yield each in turn, with those behind it started that may run beside it."""
        n_tokens = 0  # of those under way
        while self._waiting or self._under_way:
            while self._waiting and len(self._under_way) < MOST_UNDER_WAY:
                if self._under_way and n_tokens >= TOKENS_UNDER_WAY:
                    break
                one = self._waiting.popleft()
                self._under_way.append((one, self._start(one, self._deadline_s)))
                n_tokens += len(one.tokens)
            yield self._under_way[0]
            n_tokens -= len(self._under_way.popleft()[0].tokens)

    def _ended(self, sequence: Sequence) -> None:
        if sequence.error is not None:
            raise sequence.error
        if sequence.finish_reason != "length":
            n_left = len(self._waiting) + len(self._under_way)
            raise CancelledError(
                f"timeout_s: found {n_left} of {self._n_texts} texts not done after "
                f"{self._timeout_s} s (need more time, or fewer texts)"
            )
        self._n_done += sequence.n_prompt
        if self._progress is not None:
            self._progress(self._n_done, self._n_total)
