"""Answer texts and conversations, one or many, whole or as they come."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from edgeinfer.arguments import ChatOptions, TextOptions, spelled_out
from edgeinfer.completion import Completion, CompletionStream, Echo, read_together
from edgeinfer.engine.constrained import ConstrainedSampler
from edgeinfer.engine.processed import ProcessedSampler
from edgeinfer.engine.sampler import Sampled, Sampler
from edgeinfer.engine.scoring import score
from edgeinfer.engine.sequence import Sequence, TokenSampler
from edgeinfer.errors import InvalidParameterError
from edgeinfer.llm.conversation import fit_messages
from edgeinfer.llm.keeping import KeepingModel
from edgeinfer.overflow import Room, Shift, checked_overflow, room_of, without_middle
from edgeinfer.request import (
    DRY_BREAKERS,
    answer_count,
    breaker_ids,
    chosen_grammar,
    chosen_sampling,
    most_logprobs,
    most_tokens,
    prompt_ids,
    seconds,
    standing,
    strings,
)
from edgeinfer.text.stream import TextStream

MOST_TOGETHER = 32  # answers of one call that are made at the same time

Messages = Ids[Mapping[str, Any]]
Opening = Callable[[Mapping[str, Any]], CompletionStream]


class AnsweringModel(KeepingModel):
    """A model that answers whoever waits for it."""

    _breakers: tuple[tuple[str, ...], tuple[tuple[int, ...], ...]] | None = None  # the last ones

    @spelled_out(TextOptions)
    def generate(self, prompt: str | Iterable[int], **options: Unpack[TextOptions]) -> Completion:
        """Continue a text and return the whole answer.

        Args:
            prompt: a text, tokenized with what the model wants around it, or token ids as they
                are to be read.
            max_tokens: most tokens of the answer; 0 reads the prompt only, so that the next call
                finds it. None stops at the model's own end or the end of the context.
            stop: strings that end the answer; it does not contain them.
            grammar: what the answer has to look like, from its first character to its last: a
                Grammar, or its text in GBNF or in llguidance's Lark. The answer ends where nothing
                can follow; one that max_tokens cuts short does not fit it. Needs the extra
                `edgeinfer[grammar]`, as the next three do, of which one at most may be given.
            json_schema: the same as a JSON schema: a dict, its text, or a pydantic class.
            regex: the same as a regular expression, of Rust's kind, that matches all of the answer.
            response_format: the same in OpenAI's form: {"type": "json_object"}, which may hold a
                "schema", or {"type": "json_schema", "json_schema": {"schema": ...}}.
            seed: 0 to 2**64 - 1; the same seed and prompt give the same answer on every machine.
                None draws one. The completion names the seed used.
            temperature ... choice: see SamplingParams for meanings and ranges. `dry_breakers` are
                strings here, by default a newline, ":", '"' and "*".
            logprobs: 0 to 64: report each token's log-probability and as many likeliest others,
                of the raw logits.
            logits_processor: called as logits_processor(ids, logits) before each token is chosen,
                with the ids so far and a row of logits, float32 (n_vocab,); returns the row to
                choose from. It runs on the engine's thread and holds up all requests. A grammar
                rules out tokens after it.
            overflow: what to do where prompt and answer are longer than the context. "error", the
                default, refuses a prompt that leaves no room. "truncate_middle" cuts the middle out
                of one that leaves none for max_tokens. "shift" cuts one that does not fit at all,
                and an answer that fills the context goes on behind the latest half of it.
            priority: -1000 to 1000; a request of a higher one goes before others.
            progress: called as progress(n_done, n_total, n_cached) while the prompt is read.
            timeout_s: seconds after which the answer ends with what it has, reason "deadline".
            echo: repeat the prompt before the answer; with logprobs, report its tokens' too.
            parse_special: take the spelling of control tokens in a text for the tokens.

        Raises:
            InvalidParameterError: an argument is out of its range, or the prompt is empty and
                the model has no token to begin with.
            GrammarError: a grammar or schema is broken, too large, asks for what is not offered, or
                comes to where nothing can follow.
            ContextOverflowError: the prompt leaves no room for an answer.
            NonFiniteError: the model computed NaN or infinity.
            ModelClosedError: the model is closed.
        """
        return self._open_text(prompt, options).read()

    @spelled_out(TextOptions)
    def stream(
        self, prompt: str | Iterable[int], **options: Unpack[TextOptions]
    ) -> CompletionStream:
        """Continue a text and return its chunks as they come; arguments and errors of `generate`.

        Example:
            >>> stream = model.stream("Once upon a time", max_tokens=40)
            >>> for chunk in stream:
            ...     print(chunk.text, end="", flush=True)
            >>> stream.completion.finish_reason
            'length'
        """
        return self._open_text(prompt, options)

    @spelled_out(TextOptions)
    def complete_many(
        self,
        prompts: Iterable[str | Iterable[int]],
        *,
        n: int = 1,
        **options: Unpack[TextOptions],
    ) -> list[Completion]:
        """Continue several texts at once, each as `generate` does.

        Args:
            prompts: texts, or lists of token ids.
            n: answers to each prompt, 1 to 128. They differ by `choice`, counted from the one
                given, and share the work of reading the prompt.

        Returns: the answers to the first prompt, then those to the second, and so on.
        `progress` is called for one answer after another. The other arguments and errors are those
        of `generate`; one error ends all.
        """
        if isinstance(prompts, str):
            raise InvalidParameterError("prompts: found a text (need a list of texts or of ids)")
        openings: list[Opening] = [partial(self._open_text, prompt) for prompt in prompts]
        return self._read_all(openings, n, options)

    @spelled_out(ChatOptions)
    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Completion:
        """Answer a conversation.

        Args:
            messages: dicts with "role" and "content", oldest first. Text in them stays text, even
                where it spells a control token.
            template: Jinja source to lay the conversation out by, in place of the model's.
            tools: function descriptions for templates that know them.
            template_variables: further values for the template (enable_thinking, ...).
            overflow: as `generate` has it; what is cut from the middle is the oldest turns after
                the system message, whole.

        The other arguments and errors are those of `generate`; besides, TemplateError where the
        model has no chat template or its template refuses the messages.
        """
        return self._open_chat(messages, options).read()

    @spelled_out(ChatOptions)
    def stream_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> CompletionStream:
        """Answer a conversation in chunks as they come; arguments and errors of `chat`."""
        return self._open_chat(messages, options)

    @spelled_out(ChatOptions)
    def chat_many(
        self, conversations: Iterable[Messages], *, n: int = 1, **options: Unpack[ChatOptions]
    ) -> list[Completion]:
        """Answer several conversations at once: `complete_many` with the arguments of `chat`."""
        openings: list[Opening] = [partial(self._open_chat, turns) for turns in conversations]
        return self._read_all(openings, n, options)

    def _read_all(
        self, openings: Ids[Opening], n: int, options: Mapping[str, Any]
    ) -> list[Completion]:
        first = options.get("choice") or 0
        n = answer_count(n)
        calls = [
            partial(opening, {**options, "choice": first + i})
            for opening in openings
            for i in range(n)
        ]
        return read_together(calls, most_open=MOST_TOGETHER)

    def _open_text(
        self, prompt: str | Iterable[int], options: Mapping[str, Any]
    ) -> CompletionStream:
        given = prompt_ids(self.tokenizer, prompt, bool(options.get("parse_special")))
        tokens = without_middle(given, self._room(options))
        return self._open(
            tokens,
            options,
            prompt=prompt if isinstance(prompt, str) else None,
            n_dropped=len(given) - len(tokens),
        )

    def _open_chat(self, messages: Messages, options: Mapping[str, Any]) -> CompletionStream:
        def lay_out(messages: Messages) -> list[int]:
            return self.apply_template(
                messages,
                template=options.get("template"),
                tools=options.get("tools"),
                template_variables=options.get("template_variables"),
            )

        tokens, n_dropped = fit_messages(messages, lay_out, self._room(options))
        return self._open(tokens, options, at_start=True, n_dropped=n_dropped)

    def _room(self, options: Mapping[str, Any]) -> Room:
        overflow = checked_overflow(options.get("overflow"))
        return room_of(self.n_ctx, options.get("max_tokens"), overflow)

    def _open(
        self,
        tokens: list[int],
        options: Mapping[str, Any],
        *,
        prompt: str | None = None,
        at_start: bool = False,
        n_dropped: int = 0,
    ) -> CompletionStream:
        """Start a sequence.

        `options` are those of the public method. `prompt` is the text of the tokens, if they came
        as one. `at_start`: the answer is a text of its own, so the space that an encoder puts
        before a text is no part of it.
        """
        self._check_writes()
        params = chosen_sampling(self.sampling_defaults, options)
        if params.dry_multiplier > 0:
            params = replace(params, dry_breakers=self._breaker_ids(options.get("dry_breakers")))
        sampler = Sampler(params, self.n_vocab)
        grammar = chosen_grammar(options)
        constraint = None if grammar is None else self.matcher(grammar)
        chooser: TokenSampler = sampler
        if constraint is not None:
            chooser = ConstrainedSampler(chooser, constraint)
        shifts = options.get("overflow") == "shift"
        if (processor := options.get("logits_processor")) is not None:
            chooser = ProcessedSampler(chooser, processor)
        sequence = Sequence(
            tokens,
            chooser,
            max_tokens=most_tokens(options.get("max_tokens"), None if shifts else self.n_ctx),
            stop_ids=self.tokenizer.stop_ids,
            n_logprobs=most_logprobs(options.get("logprobs")),
            priority=standing(options.get("priority")),
            constraint=constraint,
        )
        timeout_s = seconds("timeout_s", options.get("timeout_s"))
        stop = strings("stop", options.get("stop") or ())
        echo = self._echo(tokens, prompt, sequence.n_logprobs) if options.get("echo") else None
        return CompletionStream(
            self._submit(sequence, timeout_s),
            # a grammar holds for the space an encoder puts before a text, too
            TextStream(self.tokenizer, stop=stop, at_start=at_start and constraint is None),
            seed=sampler.seed,
            load_s=self._load_s,
            progress=options.get("progress"),
            owner=self,
            echo=echo,
            n_dropped=n_dropped,
            renew=Shift(self._submit, self.n_ctx) if shifts else None,
        )

    def _echo(self, tokens: list[int], prompt: str | None, n_top: int | None) -> Echo:
        text = prompt if prompt is not None else self.detokenize(tokens)
        return Echo(text, None if n_top is None else self._scores(tokens, n_top))

    def _scores(self, tokens: list[int], n_top: int) -> tuple[Sampled | None, ...]:
        """Report how likely each token was after those before it."""
        scores: list[Sampled | None] = [None]
        for first, rows in self._rows(tokens):
            for row, token in zip(rows, tokens[first + 1 :], strict=False):
                scores.append(score(row, token, n_top))
        return tuple(scores)

    def _breaker_ids(self, given: str | Iterable[str] | None) -> tuple[tuple[int, ...], ...]:
        texts = DRY_BREAKERS if given is None else strings("dry_breakers", given)
        if self._breakers is None or self._breakers[0] != texts:
            self._breakers = texts, breaker_ids(self.tokenizer, texts)
        return self._breakers[1]
