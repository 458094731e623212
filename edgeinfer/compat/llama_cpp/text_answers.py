"""Write completions down as the dicts of llama-cpp-python's `create_completion`."""

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
        n_answer = len(done.text) - (len(prompt) if echoed else 0)
        words = _within(_spelled(tokenizer, done.tokens), n_answer)
        scores: list[Sampled | None] = list(done.logprobs[: len(words)])
        at = len(prompt)
        if done.prompt_logprobs is not None:
            words, at = _prompt_words(done.prompt_logprobs, prompt, tokenizer) + words, 0
            scores = [*done.prompt_logprobs, *scores]
        logprobs = _logprobs(words, scores, at, tokenizer)
    return _answer(stamp, done.text, logprobs, done.finish_reason) | {"usage": usage_of(done)}


def chunks(
    stream: CompletionStream, prompt: str, stamp: Stamp, tokenizer: Tokenizer
) -> Iterator[Answer]:
    """Yield an answer in pieces; the last one has no text and says why it ended."""
    at = len(prompt)
    with stream:
        for chunk in stream:
            if not chunk.text:  # the tokens of a stop string
                continue
            logprobs = None
            if chunk.logprobs:
                words = _spelled(tokenizer, chunk.tokens)
                logprobs = _logprobs(words, list(chunk.logprobs), at, tokenizer)
                at += sum(map(len, words))
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
    return tokenizer.piece(token).decode("utf-8", errors="ignore")


def _answer(stamp: Stamp, text: str, logprobs: Answer | None, reason: str | None) -> Answer:
    return {
        "id": stamp.id,
        "object": "text_completion",
        "created": stamp.created,
        "model": stamp.model,
        "choices": [{"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}],
    }


def _spelled(tokenizer: Tokenizer, tokens: Iterable[int]) -> list[str]:
    return [word(tokenizer, token) for token in tokens]


def _prompt_words(scores: Sequence[Sampled | None], prompt: str, tokenizer: Tokenizer) -> list[str]:
    """Return the words of a prompt; its first token has no score to name it by."""
    rest = _spelled(tokenizer, [s.token for s in scores if s])
    return [prompt[: max(0, len(prompt) - sum(map(len, rest)))], *rest]


def _within(words: list[str], length: int) -> list[str]:
    """Return the words that begin within `length` characters: a stop string's are left out."""
    kept, at = [], 0
    for spelled in words:
        if at >= length:
            break
        kept.append(spelled)
        at += len(spelled)
    return kept


def _logprobs(
    words: Sequence[str], scores: Sequence[Sampled | None], at: int, tokenizer: Tokenizer
) -> Answer:
    """Return the legacy form: a list each of tokens, offsets, log-probabilities, alternatives."""
    offsets = []
    for spelled in words:
        offsets.append(at)
        at += len(spelled)
    return {
        "tokens": list(words),
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
