"""Define what an answer is: its text, its tokens, why it ended; whole, or in pieces as it comes."""

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from edgeinfer.engine.events import Event, Finished, Progress, Token
from edgeinfer.engine.handle import Handle
from edgeinfer.engine.handle import PromptProgress as PromptProgress
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sequence import FinishReason, Sequence
from edgeinfer.errors import InvalidParameterError
from edgeinfer.overflow import Shift


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    prompt_tokens: all ids of the prompt, after the chat template. cached_tokens: those of them
    that were not computed again. completion_tokens: the ids of the answer; a stop token that
    ended it is not one of them, the tokens of a stop string are.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, and the speeds they mean.

    load_s: making the model ready. prompt_s: the steps that read the prompt, up to the answer's
    first token. generate_s: the steps after that. Time a slow reader let the model wait does not
    count. A speed is 0.0 where there was nothing to time. guessed_tokens: what was computed before
    the model had chosen it, to save a step; accepted_tokens: those of them that it then chose.
    """

    load_s: float
    prompt_s: float
    generate_s: float
    prompt_tokens_per_s: float
    tokens_per_s: float
    guessed_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer.

    text: what the model wrote, valid text without the stop string, a character that the limit cut
    in two being one U+FFFD; after the prompt, if that was to be echoed.
    tokens: the ids of what it wrote.
    finish_reason: "stop" (the model ended, or a stop string came), "length" (max_tokens, or the
    context is full), "deadline" (its time was up), "cancelled" (the stream was closed early).
    stop: the stop string that ended it, or None. seed: what makes the same answer again.
    logprobs: one entry a token, if asked for.
    prompt_logprobs: the same of an echoed prompt; None for its first token, which follows nothing.
    n_dropped: tokens that were left out, as `overflow` allowed.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | None
    seed: int
    usage: Usage
    timings: Timings
    logprobs: tuple[Sampled, ...] | None = None
    prompt_logprobs: tuple[Sampled | None, ...] | None = None
    n_dropped: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer: text that is final, and the ids since the chunk before.

    The texts of all chunks joined are the completion's text. A chunk holds whole characters only,
    so an emoji of three tokens comes as one chunk with three ids. logprobs: one entry an id, if
    asked for.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Sampled, ...] = field(default=(), repr=False)


class TextAssembler(Protocol):
    """Turn ids into text as they come, holding back what may be part of a stop string."""

    @property
    def stopped_by(self) -> str | None:
        """The stop string that has come, if one has."""

    def push(self, token_id: int, /) -> str:
        """Take the next id and return the text that is now final."""

    def finish(self) -> str:
        """Return the text that was still held back."""


class Echo(NamedTuple):
    """A prompt to be repeated before the answer: its text, and how likely it was if asked for."""

    text: str
    logprobs: tuple[Sampled | None, ...] | None


class CompletionStream:
    """An answer as it is made: iterate for its chunks, then read `completion`.

    In an event loop, `async for` iterates and `await` reads to the end; cancelling the task stops
    the model.

    Leaving the loop early, `close()`, or forgetting the stream stops the model within
    milliseconds; `completion` then holds what was read, with finish_reason "cancelled".
    A stream belongs to one thread or task at a time.
    """

    def __init__(
        self,
        handle: Handle,
        text: TextAssembler,
        *,
        seed: int,
        load_s: float,
        progress: PromptProgress | None,
        owner: object,
        echo: Echo | None = None,
        n_dropped: int = 0,
        renew: Shift | None = None,
    ) -> None:
        """Read from `handle` through `text`; `owner` is kept alive for as long as the stream.

        `n_dropped` tokens of the prompt were left out. `renew` makes the handle of the rest where
        the context is full.
        """
        self._handle = handle
        self._text = text
        self._seed = seed
        self._load_s = load_s
        self._progress = progress
        self._owner = owner
        self._echo = echo
        self._n_dropped = n_dropped
        self._renew = renew
        self._sequences = [handle.sequence]  # those of an answer that outgrew the context
        self._pieces: list[str] = [echo.text] if echo else []
        self._is_echo_due = echo is not None
        self._is_cancelled = False
        self._tokens: list[int] = []
        self._logprobs: list[Sampled] = []
        self._n_passed_on = 0
        self._end: tuple[FinishReason, str | None] | None = None  # why, and by which stop string

    @property
    def completion(self) -> Completion:
        """The whole answer; InvalidParameterError as long as the stream goes on."""
        if self._end is None:
            raise InvalidParameterError("stream: not at its end: read it, or close it, first")
        first = self._sequences[0]
        reason, stop = self._end
        with_logprobs = first.n_logprobs is not None
        return Completion(
            text="".join(self._pieces),
            tokens=tuple(self._tokens),
            finish_reason=reason,
            stop=stop,
            seed=self._seed,
            usage=Usage(first.n_prompt, first.n_cached, len(self._tokens)),
            timings=_timings(self._sequences, self._load_s),
            logprobs=tuple(self._logprobs) if with_logprobs else None,
            prompt_logprobs=self._echo.logprobs if self._echo else None,
            n_dropped=self._n_dropped + (self._renew.n_dropped if self._renew else 0),
        )

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        """Wait for the next chunk; raises what made the model fail."""
        if (echo := self._echo_once()) is not None:
            return echo
        try:
            while self._end is None:
                chunk = self._react(next(self._handle))
                if chunk is not None:
                    return chunk
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        """Wait for the next chunk without blocking the event loop."""
        if (echo := self._echo_once()) is not None:
            return echo
        try:
            while self._end is None:
                chunk = self._react(await anext(self._handle))
                if chunk is not None:
                    return chunk
        except BaseException:
            self.close()
            raise
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._read_async().__await__()

    def read(self) -> Completion:
        """Read what is left and return the whole answer."""
        for _ in self:
            pass
        return self.completion

    def cancel(self) -> None:
        """Ask the model to stop; the stream then ends by itself, with what was made so far.

        May be called from any thread and from a signal handler.
        """
        self._is_cancelled = True
        self._handle.cancel()

    def close(self) -> None:
        """Stop the model and end the stream here; at its end this does nothing."""
        self._end = self._end or ("cancelled", None)
        self._handle.cancel()

    def __enter__(self) -> "CompletionStream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> "CompletionStream":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _read_async(self) -> Completion:
        async for _ in self:
            pass
        return self.completion

    def _echo_once(self) -> Chunk | None:
        if not self._is_echo_due or self._echo is None:
            return None
        self._is_echo_due = False
        return Chunk(self._echo.text, ())

    def _react(self, event: Event) -> Chunk | None:
        """Let an event have its effect; return a chunk if there is text to pass on."""
        if self._end is not None:  # closed while it waited
            return None
        match event:
            case Progress():
                if self._progress is not None:
                    self._progress(event.n_done, event.n_total, event.n_cached)
            case Token():
                return self._take(event)
            case Finished():
                return self._finish(event.sequence)
        return None

    def _take(self, token: Token) -> Chunk | None:
        self._tokens.append(token.id)
        if token.logprob is not None:
            self._logprobs.append(token.logprob)
        text = self._text.push(token.id)
        if self._text.stopped_by is None:
            return self._chunk(text) if text else None
        chunk = self._chunk(text)
        self._end = ("stop", self._text.stopped_by)
        self._handle.cancel()
        return chunk

    def _finish(self, sequence: Sequence) -> Chunk | None:
        if sequence.error is not None:
            raise sequence.error
        assert sequence.finish_reason is not None
        if self._go_on(sequence):
            return None
        text = self._text.finish()
        chunk = self._chunk(text) if text or self._n_passed_on < len(self._tokens) else None
        stopped_by = self._text.stopped_by
        self._end = ("stop" if stopped_by is not None else sequence.finish_reason, stopped_by)
        return chunk

    def _go_on(self, sequence: Sequence) -> bool:
        """Begin the rest of an answer that fills the context, if it may shift."""
        if self._renew is None or self._is_cancelled:
            return False
        handle = self._renew(sequence)
        if handle is None:
            return False
        self._handle = handle
        self._sequences.append(handle.sequence)
        if self._is_cancelled:  # by another thread, while there was nothing to cancel
            handle.cancel()
        return True

    def _chunk(self, text: str) -> Chunk:
        first = self._n_passed_on
        chunk = Chunk(text, tuple(self._tokens[first:]), tuple(self._logprobs[first:]))
        self._n_passed_on = len(self._tokens)
        self._pieces.append(text)
        return chunk


def _timings(sequences: Ids[Sequence], load_s: float) -> Timings:
    """Sum up an answer; prompts after the first are part of making it."""
    first, *later = sequences
    generate_s = sum(s.generate_s for s in sequences) + sum(s.prompt_s for s in later)
    return Timings(
        load_s=load_s,
        prompt_s=first.prompt_s,
        generate_s=generate_s,
        prompt_tokens_per_s=_speed(first.n_prompt - first.n_cached, first.prompt_s),
        tokens_per_s=_speed(sum(max(0, s.n_chosen - 1) for s in sequences), generate_s),
        guessed_tokens=sum(s.n_guessed for s in sequences),
        accepted_tokens=sum(s.n_accepted for s in sequences),
    )


def _speed(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def read_together(
    openings: Ids[Callable[[], CompletionStream]], *, most_open: int
) -> list[Completion]:
    """Open streams, at most `most_open` at a time, and read all to their ends, in turns.

    The order of the answers is that of the openings. One failure closes what is open and is raised.
    """
    done: dict[int, Completion] = {}
    waiting = list(enumerate(openings))[::-1]
    reading: dict[int, CompletionStream] = {}
    try:
        while waiting or reading:
            while waiting and len(reading) < most_open:
                index, opening = waiting.pop()
                reading[index] = opening()
            for index, stream in list(reading.items()):
                if next(stream, None) is None:
                    done[index] = reading.pop(index).completion
    except BaseException:
        for stream in reading.values():
            stream.close()
        raise
    return [done[index] for index in range(len(openings))]
