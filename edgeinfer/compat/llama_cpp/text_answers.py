"""Write completions down as the dicts of llama-cpp-python's `create_completion`."""

import codecs
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeinfer.completion import Chunk, Completion, CompletionStream
from edgeinfer.engine.sampler import Sampled
from edgeinfer.text.tokenizer import PieceJoiner, Tokenizer

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What all dicts of one answer have in common."""

    prefix: str
    model: str
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", f"{self.prefix}-{uuid.uuid4()}")
        object.__setattr__(self, "created", int(time.time()))


def whole(
    done: Completion, prompt: str, stamp: Stamp, tokenizer: Tokenizer, *, echoed: bool
) -> Answer:
    """Return a finished answer; `prompt` is the text before it, part of its own if `echoed`."""
    logprobs = None
    if done.logprobs is not None:
        written = Written(tokenizer, 0 if echoed else len(prompt), answer_at=len(prompt))
        tokens, offsets, answered = written.of(Chunk(done.text, done.tokens, done.logprobs))
        words = [word(tokenizer, token) for token in tokens]
        scores: list[Sampled | None] = [*answered]
        if done.prompt_logprobs is not None:
            pieces = _prompt_pieces(done.prompt_logprobs, prompt, tokenizer)
            words = [_legible(piece) for piece in pieces] + words
            offsets = _Offsets(0).of(pieces) + offsets
            scores = [*done.prompt_logprobs, *scores]
        logprobs = _logprobs(words, offsets, scores, tokenizer)
    return _answer(stamp, done.text, logprobs, done.finish_reason) | {"usage": usage_of(done)}


def chunks(
    stream: CompletionStream, prompt: str, stamp: Stamp, tokenizer: Tokenizer, *, echoed: bool
) -> Iterator[Answer]:
    """Yield an answer in pieces; the last one has no text and says why it ended."""
    written = Written(tokenizer, 0 if echoed else len(prompt), answer_at=len(prompt))
    with stream:
        for chunk in stream:
            tokens, offsets, scores = written.of(chunk)
            if not chunk.text:  # the tokens of a stop string
                continue
            logprobs = None
            if scores:
                words = [word(tokenizer, token) for token in tokens]
                logprobs = _logprobs(words, offsets, scores, tokenizer)
            yield _answer(stamp, chunk.text, logprobs, None)
        yield _answer(stamp, "", None, stream.completion.finish_reason)


def usage_of(done: Completion) -> Answer:
    """Return the token counts."""
    return {
        "prompt_tokens": done.usage.prompt_tokens,
        "completion_tokens": done.usage.completion_tokens,
        "total_tokens": done.usage.total_tokens,
    }


def word(tokenizer: Tokenizer, token: int) -> str:
    """Return the text one token stands for, without what is no UTF-8 by itself."""
    return _legible(tokenizer.piece(token))


class Written:
    """The tokens whose text has begun to be passed on; those of a stop string never are.

    A chunk may end in the middle of a token, or before the last of those it was made of.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        n_passed_on: int = 0,
        *,
        answer_at: int = 0,
        at_start: bool = False,
    ) -> None:
        """Begin with so much of the text passed on; the answer begins at `answer_at`.

        `at_start`: it is a text of its own, as TextStream takes it.
        """
        self._end = n_passed_on
        self._offsets = _Offsets(answer_at)
        self._joiner = PieceJoiner(tokenizer, skip_special=True, at_start=at_start)
        self._left: list[tuple[int, int, Sampled]] = []

    def of(self, chunk: Chunk) -> tuple[list[int], list[int], list[Sampled]]:
        """Return tokens, their offsets and their scores, with the next piece of text."""
        self._end += len(chunk.text)
        offsets = self._offsets.of(map(self._joiner.push, chunk.tokens))
        self._left += zip(chunk.tokens, offsets, chunk.logprobs, strict=False)
        n = sum(at < self._end for _, at, _ in self._left)
        passed_on, self._left = self._left[:n], self._left[n:]
        return (
            [token for token, _, _ in passed_on],
            [at for _, at, _ in passed_on],
            [score for _, _, score in passed_on],
        )


class _Offsets:
    """Count characters, of which one may be spread over several tokens: the last one ends it."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, pieces: Iterable[bytes]) -> list[int]:
        """Return where in the text each of the next pieces begins."""
        found = []
        for piece in pieces:
            found.append(self._at)
            self._at += len(self._decoder.decode(piece))
        return found


def _legible(piece: bytes) -> str:
    return piece.decode("utf-8", errors="ignore")


def _answer(stamp: Stamp, text: str, logprobs: Answer | None, reason: str | None) -> Answer:
    return {
        "id": stamp.id,
        "object": "text_completion",
        "created": stamp.created,
        "model": stamp.model,
        "choices": [{"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}],
    }


def _prompt_pieces(
    scores: Sequence[Sampled | None], prompt: str, tokenizer: Tokenizer
) -> list[bytes]:
    """Return the bytes of a prompt's tokens; its first has no score to name it by."""
    rest = [tokenizer.piece(s.token) for s in scores if s]
    whole = prompt.encode()
    return [whole[: max(0, len(whole) - sum(map(len, rest)))], *rest]


def _logprobs(
    words: list[str],
    offsets: list[int],
    scores: Sequence[Sampled | None],
    tokenizer: Tokenizer,
) -> Answer:
    """Return the legacy form: a list each of tokens, offsets, log-probabilities, alternatives."""
    return {
        "tokens": words,
        "text_offset": offsets,
        "token_logprobs": [s.logprob if s else None for s in scores],
        "top_logprobs": [_alternatives(s, tokenizer) if s else None for s in scores],
    }


def _alternatives(score: Sampled, tokenizer: Tokenizer) -> dict[str, float]:
    """Map the likeliest tokens to their log-probabilities; the chosen one is always there."""
    found: dict[str, float] = {}
    for token, logprob in (*score.top, (score.token, score.logprob)):
        found.setdefault(word(tokenizer, token), logprob)
    return found
