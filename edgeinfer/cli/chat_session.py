"""Hold what one chat is: the model, the conversation, how answers are made. Writes nothing."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from edgeinfer.cli.answer import Reply
from edgeinfer.cli.conversation import Conversation, from_messages
from edgeinfer.cli.options import (
    MINUS_ONE_IS_NONE,
    AnswerFlags,
    SamplingFlags,
    unescape,
)
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.model import Model

BACK_TO_DEFAULT = "default"


@dataclass(slots=True)
class Session:
    """One chat. `settings` are the arguments of `Model.stream_chat` that /set may change, as far
    as they were given; `fixed` are others that hold for every answer.
    """

    model: "Model"
    conversation: Conversation = field(default_factory=Conversation)
    fixed: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    show_stats: bool = False
    last_reply: Reply | None = None
    n_retries: int = 0

    def arguments(self) -> dict[str, Any]:
        """Return what every answer is asked for with."""
        return self.fixed | self.settings

    def setting_names(self) -> list[str]:
        """Return the names /set takes, in the order of the flags."""
        return list(dict.fromkeys(name for name, _ in _SETTINGS.values()))

    def set(self, name: str, value: str) -> str:
        """Change one setting from text and return what happened; all or nothing."""
        known, _ = _find(name)
        if value == BACK_TO_DEFAULT or (known in MINUS_ONE_IS_NONE and value == "-1"):
            self.settings.pop(known, None)
            return f"{known}: default"
        parsed = self.parse(known, value)
        self.replace_settings({**self.settings, known: parsed})
        return f"{known} = {parsed}"

    def parse(self, name: str, value: str) -> Any:
        """Return the value of a setting; raises InvalidParameterError if `value` is none."""
        known, kind = _find(name)
        if kind is list:
            return [unescape(value)]
        try:
            return kind(value)
        except ValueError:
            need = "a whole number" if kind is int else "a number"
            raise InvalidParameterError(f"{known}: found {value!r} (need {need})") from None

    def replace_settings(self, settings: dict[str, Any]) -> None:
        """Take all settings anew; InvalidParameterError if one is unknown or out of range."""
        checked = {}
        for name, value in settings.items():
            known, kind = _find(name)
            is_plain = kind in (list, str)
            right = isinstance(value, kind) if is_plain else _is_number(value, kind)
            if not right:
                raise InvalidParameterError(f"{known}: found {value!r} (need {kind.__name__})")
            checked[known] = value
        self._check_ranges(checked)
        self.settings = checked

    def _check_ranges(self, settings: dict[str, Any]) -> None:
        sampling = {field.name for field in fields(self.model.sampling_defaults)}
        # SamplingParams checks every range when it is made.
        replace(
            self.model.sampling_defaults,
            **{name: value for name, value in settings.items() if name in sampling},
        )
        if "overflow" in settings:
            from edgeinfer.overflow import checked_overflow

            checked_overflow(settings["overflow"])
        if settings.get("max_tokens", 0) < 0:
            raise InvalidParameterError(
                f"max_tokens: found {settings['max_tokens']} (need 0 or more, or -1 for no limit)"
            )

    def model_defaults(self) -> dict[str, Any]:
        """Return the sampling defaults that the model's file or the catalogue recommends."""
        defaults = self.model.sampling_defaults
        found = {row.name: getattr(defaults, row.name) for row in fields(defaults)}
        return {
            row.name: found[row.name]
            for row in fields(defaults)
            if row.default is not MISSING and found[row.name] != row.default
        }

    def is_greedy(self) -> bool:
        """Return whether the same question always gets the same answer."""
        default = self.model.sampling_defaults.temperature
        return not self.settings.get("temperature", default)

    def another_try(self) -> dict[str, int]:
        """Return what makes the next answer to a question differ from the ones before.

        Where the user fixed no seed, each answer has its own anyway.
        """
        self.n_retries += 1
        return {"choice": self.n_retries} if "seed" in self.settings else {}

    def keep(self, path: Path) -> int:
        """Write the conversation with its keys and values; return the tokens that have some."""
        messages = self.conversation.messages()
        if not messages:
            raise InvalidParameterError(f"{path}: there is no conversation to keep yet")
        variables = self.fixed.get("template_variables")
        kept = self.model.save_session(path, messages, template_variables=variables)
        return kept.n_restored

    def restore(self, path: Path) -> int:
        """Go on with a conversation that `keep` wrote; return the tokens that are ready."""
        kept = self.model.load_session(path)
        if not kept.messages:
            raise InvalidParameterError(f"{path}: holds a text, no messages of a chat")
        self.conversation = from_messages(kept.messages, str(path))
        return kept.n_restored

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self.model.tokenize(text, add_special=False))

    def pieces(self, text: str) -> list[tuple[int, str]]:
        """Return the tokens of a text with what each stands for."""
        ids = self.model.tokenize(text, add_special=False)
        return [(id, self.model.detokenize([id])) for id in ids]

    def context_use(self) -> tuple[int, int]:
        """Return the tokens of the conversation so far and how many the context holds."""
        messages = self.conversation.messages()
        used = 0
        if messages:
            variables = self.fixed.get("template_variables")
            ids = self.model.apply_template(
                messages, template_variables=variables, add_generation_prompt=False
            )
            used = len(ids)
        return used, self.model.n_ctx


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (kind is float and isinstance(value, float))


def _find(name: str) -> tuple[str, type]:
    spelled = name.lstrip("-").replace("-", "_")
    if spelled not in _SETTINGS:
        known = ", ".join(dict.fromkeys(name for name, _ in _SETTINGS.values()))
        raise InvalidParameterError(f"/set {name}: no such setting (choose from {known})")
    return _SETTINGS[spelled]


def _settings_table(groups: Sequence[Any]) -> dict[str, tuple[str, type]]:
    """Map each spelling of each flag, dashes as underscores, to its setting and its type."""
    table: dict[str, tuple[str, type]] = {}
    for group in groups:
        for row in fields(group):
            union, option = get_args(row.type)
            kind = next(kind for kind in get_args(union) if kind is not type(None))
            kind = list if kind == list[str] else kind
            spellings = [row.name, option.default, *(option.param_decls or ())]
            for spelling in spellings:
                table[spelling.lstrip("-").replace("-", "_")] = (row.name, kind)
    return table


_SETTINGS = _settings_table((AnswerFlags, SamplingFlags))
