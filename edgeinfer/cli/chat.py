"""`edgeinfer chat`: a model's name in, a conversation with it in the terminal or over pipes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgeinfer.cli.answer import write_answer
from edgeinfer.cli.chat_commands import Next, is_command, names, run_command
from edgeinfer.cli.chat_screen import Screen, choose_screen, history_file
from edgeinfer.cli.chat_session import Session
from edgeinfer.cli.conversation import Conversation
from edgeinfer.cli.form import FormFlags
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
    with_flags,
)
from edgeinfer.errors import EdgeInferError, InvalidParameterError, TemplateError

if TYPE_CHECKING:
    from edgeinfer.model import Model

DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningFlags:
    """What a chat begins with."""

    prompt: Annotated[
        str | None, Option("--prompt", "-p", help="Say this first, then go on as usual.")
    ] = None
    system: Annotated[
        str | None, Option("--system-prompt", "--system", "-sys", help="The system prompt.")
    ] = None
    system_file: Annotated[
        Path | None, Option("--system-prompt-file", "-sysf", help="Read the system prompt.")
    ] = None
    template_kwargs: Annotated[
        str | None,
        Option("--chat-template-kwargs", metavar="JSON", help="Variables for the chat template."),
    ] = None

    def system_text(self) -> str | None:
        """Return the system prompt, if there is one."""
        if self.system_file is None:
            return self.system
        if self.system is not None:
            raise InvalidParameterError(
                "--system-prompt and --system-prompt-file: found both (give one of them)"
            )
        return read_text(self.system_file)

    def template_variables(self) -> dict[str, Any]:
        """Return the argument of `Model.stream_chat` that the JSON stands for, or nothing."""
        if self.template_kwargs is None:
            return {}
        try:
            variables = json.loads(self.template_kwargs)
        except (ValueError, RecursionError) as error:
            raise InvalidParameterError(f"--chat-template-kwargs: is not JSON: {error}") from None
        if not isinstance(variables, dict):
            raise InvalidParameterError(
                f"--chat-template-kwargs: found {self.template_kwargs} (need a JSON object)"
            )
        return {"template_variables": variables}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFlags:
    """How a chat is shown."""

    stats: Annotated[bool, Option("--stats", help="Show the speed of each answer.")] = False
    simple: Annotated[bool, Option("--simple-io", help="No line editing.")] = False
    no_history: Annotated[bool, Option("--no-history", help="Do not remember what is typed.")] = (
        False
    )


@with_flags
def chat(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    *,
    opening: OpeningFlags,
    single_turn: Annotated[
        bool, Option("--single-turn", "-st", help="Leave after one answer.")
    ] = False,
    shown: ScreenFlags,
    answer: AnswerFlags,
    sampling: SamplingFlags,
    bias: BiasFlags,
    form: FormFlags,
    loading: LoadFlags,
) -> None:
    """Talk with a model in the terminal (default: smollm2).

    In the terminal, /help lists the commands of a chat. Over a pipe, each line is a message and
    only the answers are printed.
    """
    name = choose_model(model, model_option, DEFAULT_MODEL)
    system = opening.system_text()
    always = opening.template_variables() | form.settings()
    history = None if shown.no_history else history_file()
    screen = choose_screen(names(), history=history, simple=shown.simple)
    with load_model(name, loading) as loaded:
        need_template(loaded, name)
        fixed = bias.settings(loaded.tokenizer.stop_ids) | always
        session = Session(loaded, Conversation(system), fixed, show_stats=shown.stats)
        session.replace_settings(given(answer, sampling))
        if screen.interactive:
            screen.note(f"{name}, {loaded.n_ctx:,} tokens of context; /help lists the commands")
        converse(session, screen, first=opening.prompt, single_turn=single_turn)


def need_template(model: "Model", name: str) -> None:
    """Raise TemplateError unless the model says how a conversation is written for it."""
    if model.pooling is not None:
        use = "rank" if model.pooling == "rank" else "embed"
        raise TemplateError(f"{name}: reads texts and writes none (need 'edgeinfer {use} {name}')")
    if model.tokenizer.chat_template is None:
        raise TemplateError(
            f"{name}: has no chat template, so it is no chat model (or its file lost it); "
            f"'edgeinfer run {name} -p TEXT' continues a text"
        )


def converse(
    session: Session, screen: Screen, *, first: str | None = None, single_turn: bool = False
) -> None:
    """Read messages and answer them until the end of input, /exit, or a Ctrl-C at the prompt.

    A failed turn leaves the messages as they were; files read for it have to be read again. A
    person reads why it failed and goes on, a script gets the error.
    """
    text = first
    while True:
        if text is None:
            text = screen.read()
        if text is None:
            return
        try:
            if not _turn(session, screen, text) or (single_turn and session.last_reply):
                return
        except EdgeInferError as error:
            if not screen.interactive:
                raise
            screen.note(f"error: {error}")
        text = None


def _turn(session: Session, screen: Screen, text: str) -> bool:
    """Carry out a command or answer a message; False if the chat is to be left."""
    if not text.strip():
        return True
    before = list(session.conversation.turns)
    try:
        once: dict[str, Any] = {}
        if is_command(text):
            outcome = run_command(session, text)
            if outcome.text:
                screen.note(outcome.text)
            if outcome.next is not Next.ANSWER:
                return outcome.next is Next.PROMPT
            once = outcome.once or {}
        else:
            session.n_retries = 0
            session.conversation.ask(text.strip("\n").rstrip())
        messages, settings = session.conversation.messages(), session.arguments() | once
        reply = write_answer(
            lambda progress: session.model.stream_chat(messages, progress=progress, **settings),
            screen,
            stoppable=screen.interactive,
        )
    except (EdgeInferError, KeyboardInterrupt):
        session.conversation.turns[:] = before
        raise
    session.last_reply = reply
    if reply.text:
        session.conversation.answer(reply.text)
    else:
        session.conversation.turns[:] = before
        screen.note("no answer; the question is taken back")
    if reply.remark:
        screen.note(reply.remark)
    if session.show_stats:
        screen.note(reply.speed_line())
    return True
