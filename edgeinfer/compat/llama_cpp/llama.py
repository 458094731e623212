"""Answer to the calls of `llama_cpp.Llama` with edgeinfer's `Model`."""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

from edgeinfer.compat.llama_cpp import chat_answers, text_answers, tool_answers
from edgeinfer.compat.llama_cpp.constants import LLAMA_DEFAULT_SEED
from edgeinfer.compat.llama_cpp.embeddings import Embeddings, pooling_of
from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError, translated
from edgeinfer.compat.llama_cpp.evaluation import Evaluation, LlamaState
from edgeinfer.compat.llama_cpp.facts import Facts
from edgeinfer.compat.llama_cpp.forms import form_of, grammar_of
from edgeinfer.compat.llama_cpp.from_hub import fetch
from edgeinfer.compat.llama_cpp.infill import infill_ids
from edgeinfer.compat.llama_cpp.llama_cache import BaseLlamaCache
from edgeinfer.compat.llama_cpp.llama_chat_format import (
    LlamaChatCompletionHandler,
    Messages,
    get_chat_completion_handler,
)
from edgeinfer.compat.llama_cpp.llama_speculative import LlamaDraftModel
from edgeinfer.compat.llama_cpp.llama_tokenizer import BaseLlamaTokenizer, LlamaTokenizer
from edgeinfer.compat.llama_cpp.options import check_unused, kv_type_of
from edgeinfer.compat.llama_cpp.processors import (
    LogitsProcessor,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    Processing,
    StoppingCriteria,
    StoppingCriteriaList,
)
from edgeinfer.compat.llama_cpp.requests import chat_variables, sampling_options, stop_strings
from edgeinfer.compat.llama_cpp.templates import ChatFormat
from edgeinfer.compat.llama_cpp.text_answers import Answer, Stamp
from edgeinfer.model import Model, load

__all__ = [
    "Llama",
    "LlamaState",
    "LogitsProcessor",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "StoppingCriteria",
    "StoppingCriteriaList",
]

OWN_TEMPLATE = "chat_template.default"  # the name of the format that is in the model's file
_OWN = frozenset(
    (
        *("n_ctx", "n_batch", "n_threads", "n_threads_batch", "seed", "last_n_tokens_size"),
        *("chat_format", "chat_handler", "tokenizer", "type_k", "type_v", "spm_infill"),
        *("logits_all", "pooling_type", "embedding", "verbose", "draft_model"),
    )
)


class Llama(Evaluation, Facts, Embeddings):
    """A model behind the names of llama-cpp-python; `edgeinfer` is the model itself.

    Arguments that change speed or memory only are accepted and left; those that would change
    answers, and that edgeinfer does not have, raise LlamaUnsupportedError.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        seed: int = LLAMA_DEFAULT_SEED,
        last_n_tokens_size: int = 64,
        chat_format: str | None = None,
        chat_handler: LlamaChatCompletionHandler | None = None,
        tokenizer: BaseLlamaTokenizer | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        spm_infill: bool = False,
        logits_all: bool = False,
        pooling_type: int = -1,
        embedding: bool = False,
        draft_model: LlamaDraftModel | str | os.PathLike[str] | None = None,
        verbose: bool = True,
        **unused: Any,
    ) -> None:
        """Make a model ready; n_ctx 0 takes the length it was trained for.

        `draft_model` may be the path of a smaller model that guesses. Guesses of any kind change no
        answer, so those of LlamaDraftModel are left to edgeinfer.
        """
        arguments = {name: value for name, value in locals().items() if name in _OWN}
        self._arguments = {"model_path": os.fspath(model_path), **arguments, **unused}
        check_unused(unused, _OWN)
        if tokenizer is not None and not isinstance(tokenizer, LlamaTokenizer):
            raise LlamaUnsupportedError(
                f"Llama: tokenizer: found {type(tokenizer).__name__} (need none): edgeinfer reads "
                "the tokenizer in the model's file; leave it out"
            )
        if chat_format not in (None, OWN_TEMPLATE):
            get_chat_completion_handler(chat_format)
        wanted = pooling_of(pooling_type)
        with translated():
            make: Callable[..., Model] = partial(
                load,
                model_path,
                n_ctx=n_ctx or None,
                n_threads=n_threads or None,
                n_threads_batch=n_threads_batch or None,
                kv_type=kv_type_of(type_k, type_v),
                draft=draft_model if isinstance(draft_model, str | os.PathLike) else None,
            )
            self.edgeinfer = make()
            # a model that writes text still does; its rows are pooled when that is asked for
            if self.edgeinfer.pooling is not None and wanted not in (None, self.edgeinfer.pooling):
                self.edgeinfer.close()
                self.edgeinfer = make(pooling=wanted)
        self.model_path = os.fspath(model_path)
        self.n_batch, self.verbose = n_batch, verbose
        self.n_threads, self.n_threads_batch = (
            self.edgeinfer.n_threads,
            self.edgeinfer.n_threads_batch,
        )
        self.last_n_tokens_size = last_n_tokens_size
        has_template = self.edgeinfer.tokenizer.chat_template is not None
        self.chat_format = chat_format or (OWN_TEMPLATE if has_template else None)
        self.chat_handler = chat_handler
        self.spm_infill = spm_infill
        self.context_params = SimpleNamespace(n_ctx=self.edgeinfer.n_ctx, n_batch=n_batch)
        self.cache: BaseLlamaCache | None = None
        self.tokenizer_: BaseLlamaTokenizer = LlamaTokenizer(self)
        self._logits_all, self._pooling_type = logits_all, pooling_type
        self._embedding = embedding
        self.set_seed(seed)
        self._begin()

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Fetch a file of a Hugging Face repository, whose name may be a pattern, and load it."""
        path = fetch(repo_id, filename, additional_files, local_dir=local_dir, cache_dir=cache_dir)
        return cls(path, **kwargs)

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Iterable[StoppingCriteria] | None = None,
        logits_processor: Iterable[LogitsProcessor] | None = None,
        grammar: Any = None,
        logit_bias: Mapping[int, float] | None = None,
    ) -> Answer | Iterator[Answer]:
        """Continue a text; return a dict in OpenAI's form, or an iterator of them (`stream`)."""
        options = self._sampling(locals())
        options |= {"logprobs": logprobs, "echo": echo, "parse_special": True}
        options["grammar"] = grammar_of(grammar)
        processing = Processing(
            logits_processor, stopping_criteria, self.edgeinfer.tokenizer.stop_ids
        )
        if processing.is_needed:
            options["logits_processor"] = processing
        tokenizer = self.edgeinfer.tokenizer
        stamp = Stamp("cmpl", model or self.model_path)
        with translated():
            given: str | Sequence[int] = prompt
            if suffix is not None:
                given = infill_ids(self.edgeinfer, prompt, suffix, suffix_first=self.spm_infill)
            opened = self.edgeinfer.stream(given, **options)
            text = given if isinstance(given, str) else tokenizer.decode(given)
            if stream:
                return _translating(
                    text_answers.chunks(opened, text, stamp, tokenizer, echoed=echo)
                )
            done = opened.read()
            return text_answers.whole(done, text, stamp, tokenizer, echoed=echo)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Messages,
        functions: Sequence[Mapping[str, Any]] | None = None,
        function_call: str | Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Iterable[LogitsProcessor] | None = None,
        grammar: Any = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> Answer | Iterator[Answer]:
        """Answer a conversation; return a dict in OpenAI's form, or an iterator of them.

        It is laid out by `chat_handler`, else by `chat_format`, else by the template in the
        model's file; where there is none of these, TemplateError says so and nothing is guessed.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        handler = self.chat_handler
        if handler is None and self.chat_format not in (None, OWN_TEMPLATE):
            handler = get_chat_completion_handler(self.chat_format)
        if handler is None:
            handler = _by_model
        with translated():
            answer: Answer | Iterator[Answer] = handler(llama=self, **options)
            return answer

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """Answer as `create_chat_completion` does, with the classes of the package openai."""
        try:
            from openai.types.chat import ChatCompletion, ChatCompletionChunk
        except ImportError as error:
            raise ImportError(
                "create_chat_completion_openai_v1 needs the package openai: pip install openai, "
                "or call create_chat_completion"
            ) from error
        answer = self.create_chat_completion(*args, **kwargs)
        if isinstance(answer, dict):
            return ChatCompletion(**answer)
        return (ChatCompletionChunk(**chunk) for chunk in answer)

    def chat_by_format(
        self,
        messages: Messages,
        chat_format: ChatFormat | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Answer | Iterator[Answer]:
        """Answer a conversation laid out by a built-in format, or by the model's own template.

        `variables` are given to the template.
        """
        made = self._sampling(options) | chat_variables(options)
        if variables is not None:
            made["template_variables"] = {**made.get("template_variables", {}), **variables}
        form = form_of(options)
        made["grammar"] = form.grammar
        if chat_format is not None:
            made["template"] = chat_format.source
            made["stop"] = [*made["stop"], *chat_format.stop]
        processing = Processing(options.get("logits_processor"), None, ())
        if processing.is_needed:
            made["logits_processor"] = processing
        tokenizer = self.edgeinfer.tokenizer
        stamp = Stamp("chatcmpl", options.get("model") or self.model_path)
        with translated():
            opened = self.edgeinfer.stream_chat(messages, **made)
            if options.get("stream"):
                pieces = chat_answers.chunks(opened, stamp, tokenizer)
                return _translating(
                    pieces if form.call is None else tool_answers.calling(pieces, form.call)
                )
            answer = chat_answers.whole(opened.read(), stamp, tokenizer)
            return answer if form.call is None else tool_answers.called(answer, form.call)

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Return the ids of a text in UTF-8."""
        return self.tokenizer_.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the bytes of ids."""
        return self.tokenizer_.detokenize(tokens, prev_tokens, special)

    def tokenizer(self) -> LlamaTokenizer:
        """Return the model's tokenizer."""
        return LlamaTokenizer(self)

    def set_cache(self, cache: BaseLlamaCache | None) -> None:
        """Remember a cache; prefixes are kept without one."""
        self.cache = cache

    def set_seed(self, seed: int) -> None:
        """Let calls without a seed draw theirs from this one; LLAMA_DEFAULT_SEED or -1: anew."""
        drawn = seed in (LLAMA_DEFAULT_SEED, -1)
        self._seed = random.SystemRandom().getrandbits(32) if drawn else seed
        self._seeds = random.Random(self._seed)

    def close(self) -> None:
        """Free the model; calling it again does nothing."""
        self.edgeinfer.close()

    def __getstate__(self) -> dict[str, Any]:
        return self._arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _sampling(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `Model` is to be given for the arguments of a request."""
        seed = arguments.get("seed")
        return sampling_options(arguments) | {
            "seed": self._seeds.getrandbits(32) if seed is None else seed,
            "penalty_last_n": self.last_n_tokens_size,
            "stop": stop_strings(arguments.get("stop")),
        }


def _by_model(*, llama: Llama, **options: Any) -> Answer | Iterator[Answer]:
    return llama.chat_by_format(**options)


def _translating(pieces: Iterator[Answer]) -> Iterator[Answer]:
    with translated():
        yield from pieces
