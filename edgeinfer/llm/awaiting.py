"""Answer event loops: each method of AnsweringModel once more, to be awaited."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from edgeinfer.arguments import (
    ChatOptions,
    EmbedOptions,
    RankOptions,
    ReadOptions,
    TextOptions,
    spelled_out,
)
from edgeinfer.completion import Completion, CompletionStream
from edgeinfer.errors import InvalidParameterError
from edgeinfer.llm.answering import MOST_TOGETHER, Messages
from edgeinfer.llm.embedding import EmbeddingModel, Floats, Texts
from edgeinfer.llm.keeping import Conversation, Session
from edgeinfer.llm.vectors import Ranked
from edgeinfer.request import answer_count

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Model(EmbeddingModel):
    """A model ready to answer. Made by `load`; ended by `close` or a `with` block.

    Methods may be called from any thread, and those that begin with an "a" from any event loop.
    Requests made at the same time run together, step by step, and each gets exactly the tokens it
    would get alone. A prompt that begins like an earlier one continues from there without
    computing the common part again. A process that forks cannot use the model in the child: load
    it there.

    Sampling arguments are None by default: then the file's own hints hold (`general.sampling.*`
    keys), else what the catalogue recommends for a model called by its name there, else the
    defaults of SamplingParams. `sampling_defaults` shows what results.
    """

    @spelled_out(TextOptions)
    async def agenerate(
        self, prompt: str | Iterable[int], **options: Unpack[TextOptions]
    ) -> Completion:
        """Continue a text, as `generate`; cancelling the task stops the model."""
        return await (await self.astream(prompt, **options))

    @spelled_out(TextOptions)
    async def astream(
        self, prompt: str | Iterable[int], **options: Unpack[TextOptions]
    ) -> CompletionStream:
        """Continue a text and return its chunks as they come, for an `async for`.

        Example:
            >>> async with await model.astream("Once upon a time") as stream:
            ...     async for chunk in stream:
            ...         print(chunk.text, end="", flush=True)
        """
        return await _opened(partial(self._open_text, prompt, options))

    @spelled_out(TextOptions)
    async def acomplete_many(
        self,
        prompts: Iterable[str | Iterable[int]],
        *,
        n: int = 1,
        **options: Unpack[TextOptions],
    ) -> list[Completion]:
        """Continue several texts at once, as `complete_many`."""
        if isinstance(prompts, str):
            raise InvalidParameterError("prompts: found a text (need a list of texts or of ids)")
        first = options.get("choice") or 0
        count = answer_count(n)
        return await _together(
            partial(self._open_text, prompt, {**options, "choice": first + i})
            for prompt in prompts
            for i in range(count)
        )

    @spelled_out(ChatOptions)
    async def achat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Completion:
        """Answer a conversation, as `chat`; cancelling the task stops the model."""
        return await (await self.astream_chat(messages, **options))

    @spelled_out(ChatOptions)
    async def astream_chat(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> CompletionStream:
        """Answer a conversation in chunks as they come, for an `async for`."""
        return await _opened(partial(self._open_chat, messages, options))

    @spelled_out(ChatOptions)
    async def achat_many(
        self, conversations: Iterable[Messages], *, n: int = 1, **options: Unpack[ChatOptions]
    ) -> list[Completion]:
        """Answer several conversations at once, as `chat_many`."""
        first = options.get("choice") or 0
        count = answer_count(n)
        return await _together(
            partial(self._open_chat, messages, {**options, "choice": first + i})
            for messages in conversations
            for i in range(count)
        )

    @spelled_out(EmbedOptions)
    async def aembed(self, texts: Texts, **options: Unpack[EmbedOptions]) -> Floats:
        """Return embeddings, as `embed`; cancelling the task stops the model."""
        made = await _in_thread(partial(self._embedding, texts, options))
        await made.passes.arun()
        return made.result()

    @spelled_out(ReadOptions)
    async def aembed_tokens(
        self, texts: Texts, **options: Unpack[ReadOptions]
    ) -> Floats | list[Floats]:
        """Return the rows of tokens, as `embed_tokens`."""
        made = await _in_thread(partial(self._token_rows, texts, options))
        await made.passes.arun()
        return made.rows()

    @spelled_out(RankOptions)
    async def arank(
        self, query: str, documents: Iterable[str], **options: Unpack[RankOptions]
    ) -> list[Ranked]:
        """Return documents in their order, as `rank`."""
        made = await _in_thread(partial(self._ranking, query, documents, options))
        await made.passes.arun()
        return made.ranked()

    async def asave_session(
        self, path: str | os.PathLike[str], conversation: Conversation, **layout: Any
    ) -> Session:
        """Write a conversation to a file, as `save_session`; once begun it is written to its end,
        also where the task is cancelled.
        """
        return await _in_thread(partial(self.save_session, path, conversation, **layout))

    async def aload_session(self, path: str | os.PathLike[str]) -> Session:
        """Read a conversation that was saved, as `load_session`."""
        return await _in_thread(partial(self.load_session, path))

    async def akeep_prefix(self, prefix: Conversation, *, most_bytes: int | None = None) -> Path:
        """Write a prefix file to the cache, as `keep_prefix`."""
        return await _in_thread(partial(self.keep_prefix, prefix, most_bytes=most_bytes))


# asyncio is imported late: whoever awaits has it, and for everybody else it would take its time.


async def _in_thread(call: Callable[[], T]) -> T:
    import asyncio

    return await asyncio.to_thread(call)


async def _opened(opening: Callable[[], CompletionStream]) -> CompletionStream:
    """Open a stream on another thread: tokenizing a long text, or scoring one, takes a while."""
    import asyncio

    task = asyncio.ensure_future(asyncio.to_thread(opening))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_close)
        raise


def _close(task: "asyncio.Future[CompletionStream]") -> None:
    """Stop what was opened for nobody."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _together(openings: Iterable[Callable[[], CompletionStream]]) -> list[Completion]:
    """Read all to their ends; the first failure cancels the others and is raised."""
    import asyncio

    turn = asyncio.Semaphore(MOST_TOGETHER)

    async def read(opening: Callable[[], CompletionStream]) -> Completion:
        async with turn:
            return await (await _opened(opening))

    tasks = [asyncio.ensure_future(read(opening)) for opening in openings]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
