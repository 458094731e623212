"""Write answers of a conversation down as the dicts of `create_chat_completion`."""

from collections.abc import Iterable, Iterator
from typing import Any

from edgeinfer.compat.llama_cpp.text_answers import Answer, Stamp, Written, usage_of, word
from edgeinfer.completion import Chunk, Completion, CompletionStream
from edgeinfer.engine.sampler import Sampled
from edgeinfer.text.tokenizer import Tokenizer


def whole(done: Completion, stamp: Stamp, tokenizer: Tokenizer) -> Answer:
    """Return a finished answer."""
    logprobs = None
    if done.logprobs is not None:
        written = Written(tokenizer, at_start=True)
        _, _, scores = written.of(Chunk(done.text, done.tokens, done.logprobs))
        logprobs = _logprobs(scores, tokenizer)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": done.text},
        "logprobs": logprobs,
        "finish_reason": done.finish_reason,
    }
    return _stamped(stamp, "chat.completion", choice) | {"usage": usage_of(done)}


def chunks(stream: CompletionStream, stamp: Stamp, tokenizer: Tokenizer) -> Iterator[Answer]:
    """Yield an answer in pieces: who speaks, what, and why it ended."""
    written = Written(tokenizer, at_start=True)
    with stream:
        yield _piece(stamp, {"role": "assistant"})
        for chunk in stream:
            _, _, scores = written.of(chunk)
            if not chunk.text:  # the tokens of a stop string
                continue
            logprobs = _logprobs(scores, tokenizer) if scores else None
            yield _piece(stamp, {"content": chunk.text}, logprobs)
        yield _piece(stamp, {}, reason=stream.completion.finish_reason)


def of_text(answer: Answer) -> Answer:
    """Return the dict of a text completion as that of a conversation's answer."""
    (choice,) = answer["choices"]
    message = {"role": "assistant", "content": choice["text"]}
    made = {
        "index": 0,
        "message": message,
        "logprobs": _of_legacy(choice["logprobs"]),
        "finish_reason": choice["finish_reason"],
    }
    head = {"id": f"chat{answer['id']}", "object": "chat.completion"}
    rest = {"created": answer["created"], "model": answer["model"], "choices": [made]}
    return head | rest | {"usage": answer["usage"]}


def of_texts(pieces: Iterable[Answer]) -> Iterator[Answer]:
    """Yield the pieces of a text completion as those of a conversation's answer."""
    for number, piece in enumerate(pieces):
        head = {
            "id": f"chat{piece['id']}",
            "model": piece["model"],
            "created": piece["created"],
            "object": "chat.completion.chunk",
        }
        (choice,) = piece["choices"]
        if number == 0:
            yield head | {"choices": [_delta({"role": "assistant"}, None, None)]}
        delta = {} if choice["finish_reason"] is not None else {"content": choice["text"]}
        logprobs = _of_legacy(choice["logprobs"])
        yield head | {"choices": [_delta(delta, logprobs, choice["finish_reason"])]}


def _stamped(stamp: Stamp, kind: str, choice: Answer) -> Answer:
    return {
        "id": stamp.id,
        "object": kind,
        "created": stamp.created,
        "model": stamp.model,
        "choices": [choice],
    }


def _piece(
    stamp: Stamp, delta: Answer, logprobs: Answer | None = None, reason: str | None = None
) -> Answer:
    return _stamped(stamp, "chat.completion.chunk", _delta(delta, logprobs, reason))


def _delta(delta: Answer, logprobs: Answer | None, reason: str | None) -> Answer:
    return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def _logprobs(scores: Iterable[Sampled], tokenizer: Tokenizer) -> Answer:
    def entry(token: int, logprob: float) -> Answer:
        made = {"token": word(tokenizer, token), "bytes": list(tokenizer.piece(token))}
        return made | {"logprob": logprob}

    content = [
        entry(s.token, s.logprob) | {"top_logprobs": [entry(*pair) for pair in s.top]}
        for s in scores
    ]
    return {"content": content, "refusal": None}


def _of_legacy(logprobs: Answer | None) -> Answer | None:
    if logprobs is None:
        return None
    rows = zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    )
    content: list[dict[str, Any]] = [
        {
            "token": token,
            "bytes": list(token.encode()) or None,  # a part of a character: not known
            "logprob": logprob,
            "top_logprobs": [
                {"token": other, "bytes": list(other.encode()) or None, "logprob": p}
                for other, p in (top or {}).items()
            ],
        }
        for token, logprob, top in rows
    ]
    return {"content": content, "refusal": None}
