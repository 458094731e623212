"""`edgeinfer run`: one prompt in, its completion out as it is written."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from edgeinfer.cli.answer import write_answer
from edgeinfer.cli.chat_screen import PipeScreen
from edgeinfer.cli.form import FormFlags
from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import (
    STDIN,
    AnswerFlags,
    BiasFlags,
    LoadFlags,
    ModelArgument,
    ModelOption,
    SamplingFlags,
    choose_model,
    given,
    read_text,
    unescape,
    with_flags,
)
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFlags:
    """Where the prompt comes from and how it is read."""

    prompt: Annotated[
        str | None, Option("--prompt", "-p", help="The text to continue.", show_default=False)
    ] = None
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="Read the prompt from a file, - is stdin; goes before -p."),
    ] = None
    parse_special: Annotated[
        bool,
        Option("--parse-special", "--raw", help="Read <|names|> of special tokens as tokens."),
    ] = False
    escape: Annotated[
        bool, Option("--escape", "-e", help=r"Replace \n, \t and the like in -p and --stop.")
    ] = False

    def text(self) -> str:
        """Return the prompt; where stdin or a file is to give it, an empty one is an error."""
        file = STDIN if self.prompt is None and self.file is None else self.file
        parts = []
        if file is not None:
            parts.append(stdin_text() if file == STDIN else read_text(file))
        if self.prompt is not None:
            parts.append(unescape(self.prompt) if self.escape else self.prompt)
        text = "\n".join(parts)
        if not text and self.prompt is None:
            raise InvalidParameterError("prompt: found no text (give it with -p, -f or on stdin)")
        return text

    def ids(self, model: "Model", text: str) -> list[int]:
        """Return the tokens of the prompt."""
        ids = model.tokenize(text, parse_special=self.parse_special)
        # A prompt that spells its special tokens may begin with BOS, which is added already.
        if self.parse_special and ids[:2] == [model.tokenizer.bos_id] * 2:
            del ids[0]
        return ids


@with_flags
def run(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    *,
    prompt: PromptFlags,
    echo: Annotated[bool, Option("--echo", help="Print the prompt before its completion.")] = False,
    stats: Annotated[bool, Option("--stats", help="Show the speed on stderr.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object at the end.")] = False,
    answer: AnswerFlags,
    sampling: SamplingFlags,
    bias: BiasFlags,
    form: FormFlags,
    loading: LoadFlags,
) -> None:
    """Complete one prompt and print the text as it is written.

    The prompt is -p, or -f, or the first followed by the second (file, then text), or what comes
    on stdin when neither is given. No chat template is applied: 'edgeinfer chat' does that.
    """
    name = choose_model(model, model_option)
    text = prompt.text()
    settings = given(answer, sampling) | form.settings()
    if prompt.escape and "stop" in settings:
        settings["stop"] = [unescape(stop) for stop in settings["stop"]]
    with load_model(name, loading) as loaded:
        ids = prompt.ids(loaded, text)
        settings |= bias.settings(loaded.tokenizer.stop_ids)
        screen = QuietScreen() if as_json else PipeScreen()
        if echo:
            screen.write(text)
        reply = write_answer(
            lambda progress: loaded.stream(ids, progress=progress, **settings),
            screen,
            stoppable=False,
        )
    if as_json:
        print(json.dumps({"model": name, "prompt": text, **reply.as_object()}, ensure_ascii=False))
    if stats:
        print(reply.speed_line(), file=sys.stderr)


class QuietScreen(PipeScreen):
    """Writes no pieces: the whole answer is printed at the end."""

    def write(self, piece: str) -> None:
        pass


def stdin_text() -> str:
    """Return all of stdin; bytes that are not UTF-8 become U+FFFD, with a warning."""
    if sys.stdin.isatty():
        print("type the prompt, Ctrl-D ends it", file=sys.stderr)
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        print(
            f"edgeinfer: warning: stdin: byte {data[error.start]:#04x} at offset {error.start} "
            "is not UTF-8; read as U+FFFD",
            file=sys.stderr,
        )
        return data.decode("utf-8", "replace")
