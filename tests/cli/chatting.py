"""A chat without a terminal: messages from a list, and a screen that a test reads."""

from edgeinfer.cli.chat import converse
from edgeinfer.cli.chat_session import Session
from edgeinfer.cli.progress import Line
from tests.cli.fake_model import FakeModel


class ListScreen:
    """Reads messages from a list; an exception in it is raised. Collects what is shown."""

    def __init__(self, *messages, interactive=True):
        self.interactive = interactive
        self._messages = list(messages)
        self.answers = ""
        self.notes = []

    def read(self):
        message = self._messages.pop(0) if self._messages else None
        if isinstance(message, BaseException):
            raise message
        return message

    def write(self, piece):
        self.answers += piece

    def note(self, text):
        self.notes.append(text)

    def progress(self):
        return Line()


def talk(*messages, interactive=True, **session):
    """Run a chat of these messages; return its screen and its session."""
    screen = ListScreen(*messages, interactive=interactive)
    chat = Session(FakeModel(), **session)
    converse(chat, screen)
    return screen, chat


def contents(session):
    return [turn["content"] for turn in session.conversation.turns]
