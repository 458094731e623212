"""The flags that commands share, one row each, spelled as users of other engines know them.

A command takes a whole group by annotating one parameter with the group's class and wearing
`@with_flags`. None means "not given": the engine's own default then holds.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from edgeinfer.errors import InvalidParameterError

SAMPLING = "Sampling"
BANNED = float("-inf")
STDIN = Path("-")
MINUS_ONE_IS_NONE = ("max_tokens", "seed")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_ESCAPE = re.compile(r"\\(n|t|r|\\|'|\"|x[0-9a-fA-F]{2})")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}

ModelArgument = Annotated[
    str | None,
    Argument(
        metavar="[MODEL]",
        help="A .gguf file, a catalogue name, or hf:owner/repo:QUANT.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None, Option("--model", "-m", metavar="MODEL", help="The same as the MODEL argument.")
]


def choose_model(argument: str | None, option: str | None, default: str | None = None) -> str:
    """Return the one model name that was given, as the argument or with -m."""
    if argument is not None and option is not None:
        raise InvalidParameterError(
            f"two models: the argument {argument!r} and -m {option!r} (give one of them)"
        )
    name = argument if argument is not None else option
    if name is None:
        name = default
    if name is None:
        raise InvalidParameterError(
            "no MODEL (need a .gguf file, a catalogue name such as smollm2, or hf:...)"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFlags:
    """How a model that reads is made ready."""

    n_threads: Annotated[
        int | None,
        Option("--threads", "-t", help="Threads (default: what affinity and quota allow)."),
    ] = None
    n_threads_batch: Annotated[
        int | None,
        Option("--threads-batch", "-tb", help="Threads that read prompts (default: as -t)."),
    ] = None
    n_ctx: Annotated[
        int | None,
        Option("--ctx-size", "--ctx", "-c", help="Longest conversation in tokens."),
    ] = None
    kv_type: Annotated[
        str, Option("--kv-type", help="Keys and values: f32, f16, q8_0 or q4_0.", show_default=True)
    ] = "f16"
    fine: Annotated[
        bool,
        Option("--fine", help="Round activations to 15 bits everywhere: closest to the model."),
    ] = False
    backend: Annotated[
        str, Option("--backend", help="auto, native, jit or reference.", show_default=True)
    ] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFlags(ReadFlags):
    """How a model that writes is made ready."""

    speculate: Annotated[
        bool,
        Option(
            "--speculate/--no-speculate",
            help="Guess ahead where an answer repeats earlier text; the answer is the same.",
        ),
    ] = True
    draft: Annotated[
        str | None,
        Option(
            "--draft",
            "--model-draft",
            "-md",
            metavar="MODEL",
            help="A small model of the same vocabulary that guesses ahead; the answer is the same.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFlags:
    """How long an answer may be and which words end it."""

    max_tokens: Annotated[
        int | None,
        Option(
            "--n-predict",
            "--predict",
            "--max-tokens",
            "-n",
            help="Most tokens to write (default: until the model stops; -1 says the same).",
        ),
    ] = None
    stop: Annotated[
        list[str] | None,
        Option("--stop", "--reverse-prompt", "-r", help="Stop before this text; repeatable."),
    ] = None
    overflow: Annotated[
        str | None,
        Option(
            "--overflow",
            help="Where the context is too short: error (default), truncate_middle or shift.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFlags:
    """How the next token is chosen: the fields carry the names of `Model.generate`."""

    seed: Annotated[
        int | None,
        Option("--seed", "-s", rich_help_panel=SAMPLING, help="Same seed, same text."),
    ] = None
    temperature: Annotated[
        float | None,
        Option(
            "--temp",
            "--temperature",
            rich_help_panel=SAMPLING,
            help="0 always takes the likeliest token (default: what suits the model, else 0.8).",
        ),
    ] = None
    top_k: Annotated[
        int | None,
        Option("--top-k", rich_help_panel=SAMPLING, help="0 keeps all tokens (default 40)."),
    ] = None
    top_p: Annotated[
        float | None,
        Option("--top-p", rich_help_panel=SAMPLING, help="1 keeps all tokens (default 0.95)."),
    ] = None
    min_p: Annotated[
        float | None,
        Option("--min-p", rich_help_panel=SAMPLING, help="0 keeps all tokens (default 0.05)."),
    ] = None
    typical_p: Annotated[
        float | None,
        Option("--typical", "--typical-p", rich_help_panel=SAMPLING, help="1 is off (default)."),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        Option("--top-nsigma", "--top-n-sigma", rich_help_panel=SAMPLING, help="-1 is off."),
    ] = None
    min_keep: Annotated[
        int | None,
        Option("--min-keep", rich_help_panel=SAMPLING, help="Fewest tokens to keep (default 0)."),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        Option("--repeat-penalty", rich_help_panel=SAMPLING, help="1 is off (default)."),
    ] = None
    penalty_last_n: Annotated[
        int | None,
        Option(
            "--repeat-last-n",
            rich_help_panel=SAMPLING,
            help="Tokens the penalties look back on (default 64).",
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        Option("--frequency-penalty", rich_help_panel=SAMPLING, help="0 is off (default)."),
    ] = None
    presence_penalty: Annotated[
        float | None,
        Option("--presence-penalty", rich_help_panel=SAMPLING, help="0 is off (default)."),
    ] = None
    dry_multiplier: Annotated[
        float | None,
        Option("--dry-multiplier", rich_help_panel=SAMPLING, help="0 is off (default)."),
    ] = None
    dry_base: Annotated[
        float | None, Option("--dry-base", rich_help_panel=SAMPLING, help="Default 1.75.")
    ] = None
    dry_allowed_length: Annotated[
        int | None, Option("--dry-allowed-length", rich_help_panel=SAMPLING, help="Default 2.")
    ] = None
    dry_last_n: Annotated[
        int | None,
        Option(
            "--dry-penalty-last-n",
            rich_help_panel=SAMPLING,
            help="Tokens DRY looks back on (default -1, all of them).",
        ),
    ] = None
    dry_breakers: Annotated[
        list[str] | None,
        Option(
            "--dry-sequence-breaker",
            rich_help_panel=SAMPLING,
            help="Text that a repetition does not reach across; repeatable.",
        ),
    ] = None
    xtc_probability: Annotated[
        float | None,
        Option("--xtc-probability", rich_help_panel=SAMPLING, help="0 is off (default)."),
    ] = None
    xtc_threshold: Annotated[
        float | None, Option("--xtc-threshold", rich_help_panel=SAMPLING, help="Default 0.1.")
    ] = None
    dynatemp_range: Annotated[
        float | None,
        Option("--dynatemp-range", rich_help_panel=SAMPLING, help="0 is off (default)."),
    ] = None
    dynatemp_exponent: Annotated[
        float | None, Option("--dynatemp-exp", rich_help_panel=SAMPLING, help="Default 1.")
    ] = None
    mirostat: Annotated[
        int | None,
        Option("--mirostat", rich_help_panel=SAMPLING, help="0 is off (default), 2 is Mirostat 2."),
    ] = None
    mirostat_tau: Annotated[
        float | None, Option("--mirostat-ent", rich_help_panel=SAMPLING, help="Default 5.")
    ] = None
    mirostat_eta: Annotated[
        float | None, Option("--mirostat-lr", rich_help_panel=SAMPLING, help="Default 0.1.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasFlags:
    """Which tokens are made likelier or less likely."""

    logit_bias: Annotated[
        list[str] | None,
        Option(
            "--logit-bias",
            "-l",
            rich_help_panel=SAMPLING,
            metavar="ID+X",
            help="Add X to the logit of token ID: 15043+1 or 15043-1; repeatable.",
        ),
    ] = None

    ignore_eos: Annotated[
        bool,
        Option("--ignore-eos", rich_help_panel=SAMPLING, help="Never end an answer by itself."),
    ] = False

    def __post_init__(self) -> None:
        for text in self.logit_bias or ():
            _bias(text)

    def settings(self, stop_ids: Iterable[int]) -> dict[str, Any]:
        """Return the keyword argument of `Model.generate`, or nothing."""
        banned = dict.fromkeys(stop_ids, BANNED) if self.ignore_eos else {}
        biases = banned | dict(_bias(text) for text in self.logit_bias or ())
        return {"logit_bias": biases} if biases else {}


def _bias(text: str) -> tuple[int, float]:
    found = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if found is not None:
            return int(found[1]), float(found[2])
    except ValueError:
        pass
    raise InvalidParameterError(f"--logit-bias: found {text!r} (need ID+X or ID-X)")


def given(*groups: Any) -> dict[str, Any]:
    """Return the flags of some groups that the user gave, by field name.

    -1 as number of tokens or as seed says "not given", as it does in llama.cpp.
    """
    values = {field.name: getattr(group, field.name) for group in groups for field in fields(group)}
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != [] and not (name in MINUS_ONE_IS_NONE and value == -1)
    }


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Spread every parameter that is annotated with a flag group into the group's own flags."""
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = parameter.annotation
        if is_dataclass(group):
            groups[parameter.name] = group
            flat += [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=field.type,
                )
                for field in fields(group)
            ]
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flat_command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    flat_command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return flat_command


def unescape(text: str) -> str:
    r"""Return the text with \n, \t, \r, \\, \', \" and \xHH replaced by what they stand for."""

    def meaning(found: re.Match[str]) -> str:
        name = found[1]
        return chr(int(name[1:], 16)) if name[0] == "x" else _ESCAPED.get(name, name)

    return _ESCAPE.sub(meaning, text)


def integers(text: str, flag: str) -> list[int]:
    """Parse '512' or '128,512' into positive integers; `flag` names the option in errors."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = [-1]
    if min(values) < 0:
        raise InvalidParameterError(
            f"{flag}: found {text!r} (need whole numbers such as 512 or 128,512)"
        )
    return values


def read_text(path: Path, *, most_bytes: int = 64 << 20) -> str:
    """Return the text of a UTF-8 file the user named."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InvalidParameterError(f"{path}: {error.strerror}") from error
    if len(data) > most_bytes:
        raise InvalidParameterError(f"{path}: longer than {most_bytes >> 20} MiB of text")
    return as_text(data, str(path))


def as_text(data: bytes, where: str) -> str:
    """Return bytes as text. Raises InvalidParameterError for what is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = data[error.start]
        raise InvalidParameterError(
            f"{where}: byte {found:#04x} at offset {error.start} is not UTF-8 text"
        ) from error


def read_size(text: str) -> int:
    """Parse '500M' or '2.5GB' into bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?)B?", text.strip().upper())
    if found is None or found[2] not in _SIZES:
        raise InvalidParameterError(f"size {text!r}: not understood (need such as 500M or 2.5GB)")
    return int(float(found[1]) * _SIZES[found[2]])
