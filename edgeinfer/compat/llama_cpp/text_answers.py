"""Write completions down as the dicts of llama-cpp-python's `create_completion`."""

import codecs
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeinfer.completion import Completion, CompletionStream
from edgeinfer.engine.sampler import Sampled
from edgeinfer.text.tokenizer import Tokenizer

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
        end = len(done.text) + (0 if echoed else len(prompt))
        offsets = _Offsets(len(prompt)).of(_written(tokenizer, done.tokens))
        offsets = [at for at in offsets if at < end]  # a stop string's are left out
        words = [word(tokenizer, token) for token in done.tokens[: len(offsets)]]
        scores: list[Sampled | None] = list(done.logprobs[: len(words)])
        if done.prompt_logprobs is not None:
            pieces = _prompt_pieces(done.prompt_logprobs, prompt, tokenizer)
            words = [_legible(piece) for piece in pieces] + words
            offsets = _Offsets(0).of(pieces) + offsets
            scores = [*done.prompt_logprobs, *scores]
        logprobs = _logprobs(words, offsets, scores, tokenizer)
    return _answer(stamp, done.text, logprobs, done.finish_reason) | {"usage": usage_of(done)}


def chunks(
    stream: CompletionStream, prompt: str, stamp: Stamp, tokenizer: Tokenizer
) -> Iterator[Answer]:
    """Yield an answer in pieces; the last one has no text and says why it ended."""
    offsets = _Offsets(len(prompt))
    with stream:
        for chunk in stream:
            if not chunk.text:  # the tokens of a stop string
                continue
            logprobs = None
            if chunk.logprobs:
                words = [word(tokenizer, token) for token in chunk.tokens]
                found = offsets.of(_written(tokenizer, chunk.tokens))
                logprobs = _logprobs(words, found, chunk.logprobs, tokenizer)
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


def _written(tokenizer: Tokenizer, tokens: Iterable[int]) -> list[bytes]:
    """Return what the tokens of an answer add to its text."""
    return [b"" if tokenizer.is_control(t) else tokenizer.piece(t) for t in tokens]


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
