"""Hold a ready model and answer with it: text -> tokens -> engine -> tokens -> text.

Knows how the parts meet, and none of what they do.
"""

import weakref
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.completion import Completion, CompletionStream, PromptProgress
from edgeinfer.engine.driver import Driver, Handle
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Rows
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import ModelClosedError
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.loader.metadata import Metadata
from edgeinfer.request import (
    DRY_BREAKERS,
    breaker_ids,
    chosen_sampling,
    most_logprobs,
    most_tokens,
    prompt_ids,
    strings,
    token_ids,
)
from edgeinfer.text.stream import TextStream
from edgeinfer.text.tokenizer import Tokenizer


class Model:
    """A model ready to answer. Made by `load`; ended by `close` or a `with` block.

    Methods may be called from any thread. Requests made at the same time run together, step by
    step, and each gets exactly the tokens it would get alone. A prompt that begins like one of
    the last conversations continues it without computing the common part again.
    A process that forks cannot use the model in the child: load it there.

    Sampling arguments are None by default: then the file's own hints hold (`general.sampling.*`
    keys), else what the catalogue recommends for a model called by its name there, else the
    defaults of SamplingParams. `sampling_defaults` shows what results.
    """

    def __init__(
        self,
        file: GgufFile,
        tokenizer: Tokenizer,
        engine: Engine,
        sampling_defaults: SamplingParams,
        *,
        load_s: float = 0.0,
    ) -> None:
        """Own `file` and `engine` from here on."""
        self._file = file
        self._engine = engine
        self._load_s = load_s
        self.tokenizer = tokenizer
        self.sampling_defaults = sampling_defaults
        self._breakers: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}  # the last ones
        self._driver = Driver(engine)
        self._finalizer = weakref.finalize(self, _close, self._driver, file)

    @property
    def path(self) -> Path:
        """The model's file."""
        return self._file.path

    @property
    def metadata(self) -> Metadata:
        """The file's keys and values, a mapping."""
        return self._file.metadata

    @property
    def n_ctx(self) -> int:
        """Longest sequence in tokens, prompt and answer together."""
        return self._engine.limits.n_ctx

    @property
    def n_vocab(self) -> int:
        """Number of token ids; they are 0 to n_vocab - 1."""
        return self._engine.executable.n_vocab

    @property
    def n_threads(self) -> int:
        """Threads that compute."""
        return self._engine.executable.n_threads

    @property
    def n_threads_batch(self) -> int:
        """Threads that read a prompt."""
        return self._engine.executable.n_threads_batch

    @property
    def load_s(self) -> float:
        """Seconds `load` took."""
        return self._load_s

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._finalizer.alive

    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: any text without lone surrogates.
            add_special: add what the model wants around a text (BOS).
            parse_special: take the spelling of control tokens for the tokens. Leave it off for
                text that users wrote.

        Raises InvalidParameterError for a lone surrogate, ModelClosedError after close().
        """
        self._check_open()
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Iterable[int]) -> str:
        """Return the text of token ids, control tokens spelled out; broken UTF-8 becomes U+FFFD.

        Raises InvalidParameterError for an id outside the vocabulary.
        """
        self._check_open()
        return self.tokenizer.decode(token_ids(ids))

    def apply_template(
        self,
        messages: Ids[Mapping[str, Any]],
        *,
        tools: Ids[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Return the token ids of a conversation as the model's chat template lays it out.

        Args:
            messages: dicts with "role" and "content", oldest first.
            tools: function descriptions for templates that know them.
            template_variables: further values for the template (enable_thinking, ...).
            add_generation_prompt: end with the opening of the assistant's turn.

        Raises:
            TemplateError: the model has no template, or it is broken or refuses the messages.
            InvalidParameterError: a message is malformed; the error names it.
        """
        self._check_open()
        variables = dict(template_variables or {})
        if tools is not None:
            variables["tools"] = list(tools)
        return self.tokenizer.encode_chat(
            messages, add_generation_prompt=add_generation_prompt, **variables
        )

    def logits(self, ids: Iterable[int]) -> npt.NDArray[np.float32]:
        """Return the logits after each token: float32 (n_tokens, n_vocab), row i after ids[i].

        Takes 4 * n_tokens * n_vocab bytes. The rows do not depend on how the prompt is cut into
        steps, on the number of threads or on what ran before.

        Raises:
            InvalidParameterError: no ids, or one outside the vocabulary.
            ContextOverflowError: more than n_ctx ids.
            NonFiniteError: the model computed NaN or infinity.
        """
        tokens = token_ids(ids)
        handle = self._submit(Sequence(tokens, None, max_tokens=0, all_rows=True))
        rows = np.empty((len(tokens), self.n_vocab), np.float32)
        try:
            for event in handle:
                if isinstance(event, Rows):
                    rows[event.first : event.first + len(event.logits)] = event.logits
        except BaseException:
            handle.cancel()
            raise
        if handle.sequence.error is not None:
            raise handle.sequence.error
        return rows

    def generate(
        self,
        prompt: str | Iterable[int],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        seed: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, typical_p: float | None = None,
        top_n_sigma: float | None = None, min_keep: int | None = None,
        repeat_penalty: float | None = None, frequency_penalty: float | None = None,
        presence_penalty: float | None = None, penalty_last_n: int | None = None,
        dry_multiplier: float | None = None, dry_base: float | None = None,
        dry_allowed_length: int | None = None, dry_last_n: int | None = None,
        dry_breakers: Iterable[str] | None = None, xtc_probability: float | None = None,
        xtc_threshold: float | None = None, dynatemp_range: float | None = None,
        dynatemp_exponent: float | None = None, mirostat: int | None = None,
        mirostat_tau: float | None = None, mirostat_eta: float | None = None,
        logit_bias: Mapping[int, float] | None = None, choice: int | None = None,
        logprobs: int | None = None,
        progress: PromptProgress | None = None,
        parse_special: bool = False,
    ) -> Completion:  # fmt: skip
        """Continue a text and return the whole answer.

        Args:
            prompt: a text, tokenized with what the model wants around it, or token ids as they
                are to be read.
            max_tokens: most tokens of the answer; 0 reads the prompt only, so that the next call
                finds it. None stops at the model's own end or the end of the context.
            stop: strings that end the answer; it does not contain them.
            seed: 0 to 2**64 - 1; the same seed and prompt give the same answer on every machine.
                None draws one. The completion names the seed used.
            temperature ... choice: see SamplingParams for meanings and ranges. `dry_breakers` are
                strings here, by default a newline, ":", '"' and "*".
            logprobs: 0 to 64: report each token's log-probability and as many likeliest others,
                of the raw logits.
            progress: called as progress(n_done, n_total, n_cached) while the prompt is read.
            parse_special: take the spelling of control tokens in a text for the tokens.

        Raises:
            InvalidParameterError: an argument is out of its range, or the prompt is empty and
                the model has no token to begin with.
            ContextOverflowError: the prompt leaves no room for an answer.
            NonFiniteError: the model computed NaN or infinity.
            ModelClosedError: the model is closed.
        """
        tokens = prompt_ids(self.tokenizer, prompt, parse_special)
        return self._open(tokens, locals()).read()

    def stream(
        self,
        prompt: str | Iterable[int],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        seed: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, typical_p: float | None = None,
        top_n_sigma: float | None = None, min_keep: int | None = None,
        repeat_penalty: float | None = None, frequency_penalty: float | None = None,
        presence_penalty: float | None = None, penalty_last_n: int | None = None,
        dry_multiplier: float | None = None, dry_base: float | None = None,
        dry_allowed_length: int | None = None, dry_last_n: int | None = None,
        dry_breakers: Iterable[str] | None = None, xtc_probability: float | None = None,
        xtc_threshold: float | None = None, dynatemp_range: float | None = None,
        dynatemp_exponent: float | None = None, mirostat: int | None = None,
        mirostat_tau: float | None = None, mirostat_eta: float | None = None,
        logit_bias: Mapping[int, float] | None = None, choice: int | None = None,
        logprobs: int | None = None,
        progress: PromptProgress | None = None,
        parse_special: bool = False,
    ) -> CompletionStream:  # fmt: skip
        """Continue a text and return its chunks as they come; arguments and errors of `generate`.

        Example:
            >>> stream = model.stream("Once upon a time", max_tokens=40)
            >>> for chunk in stream:
            ...     print(chunk.text, end="", flush=True)
            >>> stream.completion.finish_reason
            'length'
        """
        tokens = prompt_ids(self.tokenizer, prompt, parse_special)
        return self._open(tokens, locals())

    def chat(
        self,
        messages: Ids[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        seed: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, typical_p: float | None = None,
        top_n_sigma: float | None = None, min_keep: int | None = None,
        repeat_penalty: float | None = None, frequency_penalty: float | None = None,
        presence_penalty: float | None = None, penalty_last_n: int | None = None,
        dry_multiplier: float | None = None, dry_base: float | None = None,
        dry_allowed_length: int | None = None, dry_last_n: int | None = None,
        dry_breakers: Iterable[str] | None = None, xtc_probability: float | None = None,
        xtc_threshold: float | None = None, dynatemp_range: float | None = None,
        dynatemp_exponent: float | None = None, mirostat: int | None = None,
        mirostat_tau: float | None = None, mirostat_eta: float | None = None,
        logit_bias: Mapping[int, float] | None = None, choice: int | None = None,
        logprobs: int | None = None,
        progress: PromptProgress | None = None,
        tools: Ids[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> Completion:  # fmt: skip
        """Answer a conversation.

        Args:
            messages: dicts with "role" and "content", oldest first. Text in them stays text, even
                where it spells a control token.
            tools: function descriptions for templates that know them.
            template_variables: further values for the template (enable_thinking, ...).

        The other arguments and errors are those of `generate`; besides, TemplateError where the
        model has no chat template or its template refuses the messages.
        """
        tokens = self.apply_template(messages, tools=tools, template_variables=template_variables)
        return self._open(tokens, locals(), at_start=True).read()

    def stream_chat(
        self,
        messages: Ids[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        seed: int | None = None,
        temperature: float | None = None, top_k: int | None = None, top_p: float | None = None,
        min_p: float | None = None, typical_p: float | None = None,
        top_n_sigma: float | None = None, min_keep: int | None = None,
        repeat_penalty: float | None = None, frequency_penalty: float | None = None,
        presence_penalty: float | None = None, penalty_last_n: int | None = None,
        dry_multiplier: float | None = None, dry_base: float | None = None,
        dry_allowed_length: int | None = None, dry_last_n: int | None = None,
        dry_breakers: Iterable[str] | None = None, xtc_probability: float | None = None,
        xtc_threshold: float | None = None, dynatemp_range: float | None = None,
        dynatemp_exponent: float | None = None, mirostat: int | None = None,
        mirostat_tau: float | None = None, mirostat_eta: float | None = None,
        logit_bias: Mapping[int, float] | None = None, choice: int | None = None,
        logprobs: int | None = None,
        progress: PromptProgress | None = None,
        tools: Ids[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> CompletionStream:  # fmt: skip
        """Answer a conversation in chunks as they come; arguments and errors of `chat`."""
        tokens = self.apply_template(messages, tools=tools, template_variables=template_variables)
        return self._open(tokens, locals(), at_start=True)

    def close(self) -> None:
        """End what runs, free the memory; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> "Model":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(
        self, tokens: list[int], arguments: Mapping[str, Any], *, at_start: bool = False
    ) -> CompletionStream:
        """Start a sequence.

        `arguments` are those of the public method, by name. `at_start`: the answer is a text of
        its own, so the space that an encoder puts before a text is no part of it.
        """
        params = chosen_sampling(self.sampling_defaults, arguments)
        if params.dry_multiplier > 0:
            params = replace(params, dry_breakers=self._breaker_ids(arguments["dry_breakers"]))
        sampler = Sampler(params, self.n_vocab)
        sequence = Sequence(
            tokens,
            sampler,
            max_tokens=most_tokens(arguments["max_tokens"], self.n_ctx),
            stop_ids=self.tokenizer.stop_ids,
            n_logprobs=most_logprobs(arguments["logprobs"]),
        )
        return CompletionStream(
            self._submit(sequence),
            TextStream(self.tokenizer, stop=strings("stop", arguments["stop"]), at_start=at_start),
            seed=sampler.seed,
            load_s=self._load_s,
            progress=arguments["progress"],
            owner=self,
        )

    def _submit(self, sequence: Sequence) -> Handle:
        self._check_open()
        self._file.check_unchanged()
        return self._driver.submit(sequence)

    def _breaker_ids(self, given: str | Iterable[str] | None) -> tuple[tuple[int, ...], ...]:
        texts = DRY_BREAKERS if given is None else strings("dry_breakers", given)
        if texts not in self._breakers:
            self._breakers = {texts: breaker_ids(self.tokenizer, texts)}
        return self._breakers[texts]

    def _check_open(self) -> None:
        if self.is_closed:
            raise ModelClosedError(f"{self._file.path.name}: the model is closed; load it again")


def _close(driver: Driver, file: GgufFile) -> None:
    driver.close()
    file.close()
