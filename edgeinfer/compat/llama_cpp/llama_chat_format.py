"""Find how a conversation is laid out: a name, a template, or a function of the caller's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from edgeinfer.compat.llama_cpp import chat_answers, function_calling, tool_answers
from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError, LlamaValueError
from edgeinfer.compat.llama_cpp.forms import form_of
from edgeinfer.compat.llama_cpp.processors import StoppingCriteriaList
from edgeinfer.compat.llama_cpp.templates import FORMATS
from edgeinfer.text.chat import ChatTemplate

if TYPE_CHECKING:
    from edgeinfer.compat.llama_cpp.llama import Llama

Messages = Sequence[Mapping[str, Any]]
LlamaChatCompletionHandler = Callable[..., Any]
_VISION = (
    *("Llava15ChatHandler", "Llava16ChatHandler", "ObsidianChatHandler", "MoondreamChatHandler"),
    *("NanoLlavaChatHandler", "Llama3VisionAlphaChatHandler", "MiniCPMv26ChatHandler"),
    *("Qwen25VLChatHandler", "MTMDChatHandler", "Gemma4ChatHandler"),
)

# by name, for all of the process
_registered: dict[str, LlamaChatCompletionHandler] = {
    function_calling.NAME: function_calling.answer
}


class LlamaChatCompletionHandlerNotFoundException(LlamaValueError):
    """No chat format of this name."""


@dataclass
class ChatFormatterResponse:
    """What a formatter makes of a conversation."""

    prompt: str
    stop: str | list[str] | None = None
    stopping_criteria: StoppingCriteriaList | None = None
    added_special: bool = False


class ChatFormatter(Protocol):
    """A function that lays conversations out."""

    def __call__(self, *, messages: Messages, **kwargs: Any) -> ChatFormatterResponse: ...


class Jinja2ChatFormatter:
    """A formatter made of a Jinja template, which runs in a sandbox."""

    def __init__(
        self,
        template: str,
        eos_token: str,
        bos_token: str,
        add_generation_prompt: bool = True,
        stop_token_ids: list[int] | None = None,
    ) -> None:
        self.template, self.eos_token, self.bos_token = template, eos_token, bos_token
        self.add_generation_prompt = add_generation_prompt
        self._stop_ids = frozenset(stop_token_ids or ())
        self._template = ChatTemplate(template, bos_token=bos_token, eos_token=eos_token)

    def __call__(self, *, messages: Messages, **kwargs: Any) -> ChatFormatterResponse:
        names = ("functions", "function_call", "tools", "tool_choice")
        variables = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        prompt = self._template.render(
            messages, add_generation_prompt=self.add_generation_prompt, **variables
        )
        criteria = None
        if self._stop_ids:
            criteria = StoppingCriteriaList([lambda ids, _: int(ids[-1]) in self._stop_ids])
        stop = [self.eos_token] if self.eos_token else []
        return ChatFormatterResponse(prompt, stop, criteria, added_special=True)

    def to_chat_handler(self) -> LlamaChatCompletionHandler:
        """Return a chat handler that uses this formatter."""
        return chat_formatter_to_chat_completion_handler(self)


def chat_formatter_to_chat_completion_handler(
    chat_formatter: ChatFormatter,
) -> LlamaChatCompletionHandler:
    """Return a chat handler that completes what a formatter lays out."""

    def handler(*, llama: "Llama", messages: Messages, **options: Any) -> Any:
        form = form_of(options)
        names = ("functions", "function_call", "tools", "tool_choice")
        given = {name: options.pop(name, None) for name in names}
        made = chat_formatter(messages=messages, **given)
        stops = [made.stop] if isinstance(made.stop, str) else list(made.stop or [])
        stops += _as_list(options.pop("stop", None))
        n_top = options.pop("top_logprobs", None)
        logprobs = (n_top or 0) if options.pop("logprobs", None) else None
        options = {name: value for name, value in options.items() if name in _TEXT_OPTIONS}
        prompt = llama.tokenize(made.prompt.encode(), add_bos=not made.added_special, special=True)
        answer = llama.create_completion(
            prompt,
            stop=stops,
            logprobs=logprobs,
            stopping_criteria=made.stopping_criteria,
            grammar=form.grammar,
            **options,
        )
        if options.get("stream"):
            pieces = chat_answers.of_texts(answer)  # type: ignore[arg-type]
            return pieces if form.call is None else tool_answers.calling(pieces, form.call)
        whole = chat_answers.of_text(answer)  # type: ignore[arg-type]
        return whole if form.call is None else tool_answers.called(whole, form.call)

    return handler


_TEXT_OPTIONS = frozenset(
    (
        *("max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p", "stream", "seed"),
        *("frequency_penalty", "presence_penalty", "repeat_penalty", "tfs_z", "mirostat_mode"),
        *("mirostat_tau", "mirostat_eta", "model", "logits_processor", "logit_bias"),
    )
)


def register_chat_completion_handler(
    name: str, overwrite: bool = False
) -> Callable[[LlamaChatCompletionHandler], LlamaChatCompletionHandler]:
    """Return a decorator that makes a handler the chat format of this name."""

    def register(handler: LlamaChatCompletionHandler) -> LlamaChatCompletionHandler:
        if not overwrite and (name in _registered or name in FORMATS):
            raise LlamaValueError(f"chat format {name!r}: is registered already")
        _registered[name] = handler
        return handler

    return register


def register_chat_format(name: str) -> Callable[[ChatFormatter], ChatFormatter]:
    """Return a decorator that makes a formatter the chat format of this name."""

    def register(formatter: ChatFormatter) -> ChatFormatter:
        handler = chat_formatter_to_chat_completion_handler(formatter)
        register_chat_completion_handler(name)(handler)
        return formatter

    return register


def get_chat_completion_handler(name: str) -> LlamaChatCompletionHandler:
    """Return the handler of a chat format.

    Raises LlamaChatCompletionHandlerNotFoundException, which lists the names there are.
    """
    if name in _registered:
        return _registered[name]
    if name not in FORMATS:
        known = ", ".join(sorted({*FORMATS, *_registered}))
        raise LlamaChatCompletionHandlerNotFoundException(
            f"chat_format: Invalid chat handler: {name} (valid formats: {known}); leave "
            "chat_format out to use the template in the model's file"
        )

    def handler(*, llama: "Llama", messages: Messages, **options: Any) -> Any:
        return llama.chat_by_format(messages, FORMATS[name], **options)

    return handler


def hf_tokenizer_config_to_chat_formatter(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> Jinja2ChatFormatter:
    """Return the formatter that a tokenizer_config.json describes."""

    def spelling(name: str) -> str:
        token = tokenizer_config.get(name)
        return str(token.get("content", "") if isinstance(token, Mapping) else token or "")

    template = tokenizer_config.get("chat_template")
    if not isinstance(template, str):
        raise LlamaValueError("tokenizer_config: has no chat_template (need one, a text)")
    tokens = spelling("eos_token"), spelling("bos_token")
    return Jinja2ChatFormatter(template, *tokens, add_generation_prompt)


def hf_tokenizer_config_to_chat_completion_handler(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> LlamaChatCompletionHandler:
    """Return the handler that a tokenizer_config.json describes."""
    return hf_tokenizer_config_to_chat_formatter(
        tokenizer_config, add_generation_prompt
    ).to_chat_handler()


def _as_list(stop: str | Sequence[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop or [])


def __getattr__(name: str) -> NoReturn:
    if name in _VISION:
        raise LlamaUnsupportedError(f"{name}: edgeinfer reads no images (need text alone)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
