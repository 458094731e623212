"""`edgeinfer run`: one prompt in, its completion out as it is written."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from edgeinfer.cli.answer import write_answer
from edgeinfer.cli.chat_screen import PipeScreen
from edgeinfer.cli.loading import load_model
from edgeinfer.cli.options import (
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

STDIN = Path("-")


@with_flags
def run(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    prompt: Annotated[
        str | None, Option("--prompt", "-p", help="The text to continue.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="Read the prompt from a file, - is stdin; goes before -p."),
    ] = None,
    parse_special: Annotated[
        bool,
        Option("--parse-special", "--raw", help="Read <|names|> of special tokens as tokens."),
    ] = False,
    escape: Annotated[
        bool, Option("--escape", "-e", help=r"Replace \n, \t and the like in -p and --stop.")
    ] = False,
    echo: Annotated[bool, Option("--echo", help="Print the prompt before its completion.")] = False,
    stats: Annotated[bool, Option("--stats", help="Show the speed on stderr.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object at the end.")] = False,
    *,
    answer: AnswerFlags,
    sampling: SamplingFlags,
    bias: BiasFlags,
    loading: LoadFlags,
) -> None:
    """Complete one prompt and print the text as it is written.

    The prompt is -p, or -f, or the first followed by the second (file, then text), or what comes
    on stdin when neither is given. No chat template is applied: 'edgeinfer chat' does that.
    """
    name = choose_model(model, model_option)
    if escape:
        prompt = None if prompt is None else unescape(prompt)
        answer = replace(answer, stop=[unescape(stop) for stop in answer.stop or []])
    text = prompt_text(prompt, file)
    settings = given(answer, sampling)
    with load_model(name, loading) as loaded:
        ids = loaded.tokenize(text, parse_special=parse_special)
        # A prompt that spells its special tokens may begin with BOS, which is added already.
        if parse_special and ids[:2] == [loaded.tokenizer.bos_id] * 2:
            del ids[0]
        settings |= bias.settings(loaded.tokenizer.stop_ids)
        screen = QuietScreen() if as_json else PipeScreen()
        if echo and not as_json:
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


def prompt_text(prompt: str | None, file: Path | None) -> str:
    """Return the prompt; where stdin or a file is to give it, an empty one is an error."""
    if prompt is None and file is None:
        file = STDIN
    parts = []
    if file is not None:
        parts.append(stdin_text() if file == STDIN else read_text(file))
    if prompt is not None:
        parts.append(prompt)
    text = "\n".join(parts)
    if not text and prompt is None:
        raise InvalidParameterError("prompt: found no text (give it with -p, -f or on stdin)")
    return text


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
