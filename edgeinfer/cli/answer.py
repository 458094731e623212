"""Let a stream of the model write one answer onto a screen: pieces, progress, Ctrl-C, speed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeinfer.cli.chat_screen import Screen
from edgeinfer.errors import CancelledError

if TYPE_CHECKING:
    from edgeinfer.completion import Completion, CompletionStream, PromptProgress


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it stands on the screen, what the model says about it, and one thing the CLI
    measures: the wall clock from the request to the first piece.
    """

    text: str
    completion: "Completion"
    first_token_s: float

    @property
    def remark(self) -> str:
        """What a person should know about how it was made and how it ended, or nothing."""
        n_dropped = self.completion.n_dropped
        dropped = [f"[{n_dropped:,} tokens left out: the context is full]"] if n_dropped else []
        return " ".join([*dropped, *filter(None, [self._end])])

    @property
    def _end(self) -> str:
        if self.completion.finish_reason == "length":
            n_tokens = self.completion.usage.completion_tokens
            return f"[cut after {n_tokens:,} tokens: -n or the context ends here]"
        return "[stopped]" if self.completion.finish_reason == "cancelled" else ""

    def speed_line(self) -> str:
        """Return the line of `--stats`."""
        usage, timings = self.completion.usage, self.completion.timings
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        return (
            f"[ prompt: {usage.prompt_tokens:,} tokens{cached}, "
            f"{_rate(timings.prompt_tokens_per_s)} | "
            f"answer: {usage.completion_tokens:,} tokens, {_rate(timings.tokens_per_s)} | "
            f"first token {self.first_token_s:.2f} s ]"
        )

    def as_object(self) -> dict[str, Any]:
        """Return the answer as JSON can hold it."""
        completion = self.completion
        usage, timings = completion.usage, completion.timings
        return {
            "text": completion.text,
            "finish_reason": completion.finish_reason,
            "stop": completion.stop,
            "seed": completion.seed,
            "n_dropped": completion.n_dropped,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens,
                "completion_tokens": usage.completion_tokens,
            },
            "timings": {
                "load_s": timings.load_s,
                "prompt_s": timings.prompt_s,
                "generate_s": timings.generate_s,
                "first_token_s": self.first_token_s,
                "prompt_tokens_per_s": timings.prompt_tokens_per_s,
                "tokens_per_s": timings.tokens_per_s,
                "guessed_tokens": timings.guessed_tokens,
                "accepted_tokens": timings.accepted_tokens,
            },
        }


def write_answer(
    start: "Callable[[PromptProgress], CompletionStream]", screen: Screen, *, stoppable: bool
) -> Reply:
    """Start a stream and write its pieces as they come; returns when the answer has ended.

    Where it is `stoppable`, a Ctrl-C ends the answer and what was written stays; a second one, or
    one that is not caught so, is a KeyboardInterrupt.
    """
    line = screen.progress()
    pieces: list[str] = []
    first_token_s = 0.0
    started_s = time.perf_counter()

    def on_prompt(n_done: int, n_total: int, n_cached: int) -> None:
        line.update("reading", n_done - n_cached, n_total - n_cached, "tokens")

    try:
        stream = start(on_prompt)
    except KeyboardInterrupt:
        if not stoppable:
            raise
        raise CancelledError("stopped; the question is taken back") from None
    try:
        for chunk in stream:
            if not pieces:
                first_token_s = time.perf_counter() - started_s
                line.clear()
            pieces.append(chunk.text)
            screen.write(chunk.text)
    except KeyboardInterrupt:
        if not stoppable:
            raise
        stream.close()
    finally:
        stream.close()
        line.clear()
        if pieces and not pieces[-1].endswith("\n"):
            screen.write("\n")
    return Reply("".join(pieces), stream.completion, first_token_s)


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.1f} t/s" if tokens_per_s > 0 else "- t/s"
