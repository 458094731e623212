"""Own a model's file, tokenizer and engine from its first use to its end; no answers yet."""

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Ids
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.driver import Driver
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Rows
from edgeinfer.engine.handle import Handle
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import InvalidParameterError, ModelClosedError, NonFiniteError
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.loader.kv_file import UNBOUND, Binding
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.program import Pooling
from edgeinfer.request import token_ids
from edgeinfer.text.grammar import Grammar
from edgeinfer.text.matching import Grammars, Matcher
from edgeinfer.text.tokenizer import Tokenizer

MOST_TEMPLATES = 16


class Held(Protocol):
    """A file that is in use, mapped."""

    def check_unchanged(self) -> None:
        """Raise ResourceError if it is not what it was, or not there."""

    def check_contents(self) -> None:
        """Raise ResourceError if what is mapped was changed; who replaced the file did not."""

    def close(self) -> None:
        """Let go of it; safe to call twice."""


class HeldModel:
    """What a model is before it answers: its facts, its tokens, its logits, its end."""

    def __init__(
        self,
        file: GgufFile,
        tokenizer: Tokenizer,
        engine: Engine,
        sampling_defaults: SamplingParams,
        *,
        load_s: float = 0.0,
        binding: Binding = UNBOUND,
        beside: Iterable[Held] = (),
        pooling: Pooling | None = None,
        gives_rows: bool = True,
    ) -> None:
        """Own `file` and `engine` from here on; `binding` is that of what is kept on disk,
        `beside` other files that the engine uses, `pooling` what a model gives that
        writes no text, and `gives_rows` whether the engine leaves the pooling to others.
        """
        self._pooling, self._gives_rows = pooling, gives_rows
        self._binding = binding
        self._file = file
        self._files: list[Held] = [file, *beside]
        self._engine = engine
        self._load_s = load_s
        self._tokenizer: Tokenizer | None = tokenizer
        self.sampling_defaults = sampling_defaults
        self._grammars = Grammars(tokenizer, engine.executable.n_vocab)
        self._templated: dict[str, Tokenizer] = {}  # by source
        self._driver = Driver(engine)
        self._finalizer = weakref.finalize(self, _close, self._driver, self._files)

    @property
    def path(self) -> Path:
        """The model's file."""
        return self._file.path

    @property
    def metadata(self) -> Metadata:
        """The file's keys and values, a mapping."""
        return self._file.metadata

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises ModelClosedError after close."""
        if (tokenizer := self._tokenizer) is None:
            raise self._closed()
        return tokenizer

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
    def pooling(self) -> Pooling | None:
        """What a model gives that only reads: embeddings "mean", "cls", "last", rows of tokens
        "none", or scores "rank"; None if it writes text, and can be read for embeddings besides.
        """
        return self._pooling

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
        template: str | None = None,
        tools: Ids[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Return the token ids of a conversation as the model's chat template lays it out.

        Args:
            messages: dicts with "role" and "content", oldest first.
            template: Jinja source to use in place of the model's template.
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
        tokenizer = self.tokenizer if template is None else self._with_template(template)
        return tokenizer.encode_chat(
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
        self._check_writes()
        tokens = token_ids(ids)
        rows = np.empty((len(tokens), self.n_vocab), np.float32)
        for first, part in self._rows(tokens):
            rows[first : first + len(part)] = part
        return rows

    def stream_logits(
        self, ids: Iterable[int], *, first: int = 0
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Iterate over the rows of `logits` from `first` on, some at a time as they are computed.

        Each item is the index of its first row, and some rows. What the ids before `first` have in
        common with earlier ones is not computed again.

        Raises InvalidParameterError for a `first` that is not the index of an id; others as
        `logits`.
        """
        self._check_writes()
        tokens = token_ids(ids)
        if not 0 <= first < len(tokens):
            raise InvalidParameterError(f"first: found {first} (need 0 to {len(tokens) - 1})")
        return self._rows(tokens, first)

    def next_logits(self, ids: Iterable[int]) -> npt.NDArray[np.float32]:
        """Return the logits after the last token, float32 (n_vocab,), as `logits` has them.

        What the ids have in common with earlier ones is not computed again. Errors: as `logits`.
        """
        self._check_writes()
        kept = _KeptRow()
        handle = self._submit(Sequence(token_ids(ids), kept, max_tokens=1))
        try:
            for _ in handle:
                pass
        finally:
            handle.cancel()
        if handle.sequence.error is not None:
            raise handle.sequence.error
        assert kept.row is not None
        return kept.row

    def matcher(self, grammar: Grammar) -> Matcher:
        """Return what holds one answer to a grammar, for a loop of your own over `next_logits`.

        Its `allowed` says, a bit each, which ids may come next; `accept` takes the one that came.

        Raises GrammarError where the grammar cannot be kept to, ResourceError without llguidance.
        """
        self._check_open()
        return self._grammars.matcher(grammar)

    def close(self) -> None:
        """End what runs, free the memory; calling it again does nothing."""
        self._tokenizer = None
        self._grammars.close()
        self._templated = {}
        if self._finalizer():
            gc.collect()  # the interpreter keeps freed tuples of a vocabulary, and with them pages

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _with_template(self, source: str) -> Tokenizer:
        if source not in self._templated:
            if len(self._templated) >= MOST_TEMPLATES:
                self._templated = {}
            self._templated[source] = self.tokenizer.with_template_source(source)
        return self._templated[source]

    def _rows(
        self, tokens: list[int], first: int = 0
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield the logits after each token, some at a time, with the index of their first."""
        handle = self._submit(Sequence(tokens, None, max_tokens=0, rows_from=first))
        try:
            for event in handle:
                if isinstance(event, Rows):
                    yield event.first, event.rows
        finally:
            handle.cancel()
        if handle.sequence.error is not None:
            raise handle.sequence.error

    def _check_writes(self) -> None:
        if self._pooling is not None:
            use = "rank" if self._pooling == "rank" else "embed"
            raise InvalidParameterError(
                f"{self.path.name}: this model writes no text and has no logits (need `{use}`)"
            )

    def _check_ready(self) -> None:
        """Raise unless the model is open and its files are what they were."""
        self._check_open()
        for file in self._files:
            file.check_unchanged()

    def _check_contents(self) -> None:
        for file in self._files:
            file.check_contents()

    def _submit(self, sequence: Sequence, timeout_s: float | None = None) -> Handle:
        """Start a sequence; its last read raises if a file was written to meanwhile."""
        self._check_ready()
        return self._driver.submit(sequence, timeout_s=timeout_s, at_end=self._check_contents)

    def _check_open(self) -> None:
        if self.is_closed:
            raise self._closed()

    def _closed(self) -> ModelClosedError:
        return ModelClosedError(f"{self._file.path.name}: the model is closed; load it again")


class _KeptRow:
    """A sampler that keeps the logits; what it chooses is of no use."""

    row: npt.NDArray[np.float32] | None = None

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        if not np.isfinite(logits).all():
            raise NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
        self.row = logits.copy()
        return 0

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        raise NotImplementedError


def _close(driver: Driver, files: list[Held]) -> bool:
    driver.close()
    for file in files:
        file.close()
    return True
