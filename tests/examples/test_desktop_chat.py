"""The desktop example, without a screen: it loads, answers, cancels, fails and closes."""

import importlib.util
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
pytest.importorskip("PySide6.QtWidgets", reason="needs PySide6", exc_type=ImportError)

from PySide6.QtWidgets import QApplication

from edgeinfer.errors import ModelNotFoundError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/desktop_chat.py"


@pytest.fixture(scope="module")
def app():
    return QApplication.instance() or QApplication([])


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("desktop_chat", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def window(app, example):
    window = example.Window(example.Worker())
    window.show()
    yield window
    window.close()


@pytest.fixture
def loaded(app, window, smollm2_path):
    window._worker.load(str(smollm2_path))
    wait(app, window.send.isEnabled)
    model = window._worker._model  # a drawn answer need not be right
    model.sampling_defaults = replace(model.sampling_defaults, temperature=0.0)
    return window


def wait(app, condition, timeout_s=60):
    """Let Qt work until the condition holds."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it never came"
        app.processEvents()
        time.sleep(0.002)


def ask(window, text):
    window.entry.setText(text)
    window.send.click()


def test_it_loads_and_answers_two_turns(app, loaded):
    assert "SmolLM2" in loaded.windowTitle()
    assert loaded.progress.format() == "ready"

    ask(loaded, "What is the capital city of France? Answer in one sentence.")
    assert not loaded.send.isEnabled()
    assert loaded.cancel.isEnabled()
    wait(app, loaded.send.isEnabled)
    ask(loaded, "And of Italy?")
    wait(app, loaded.send.isEnabled)

    shown = loaded.transcript.toPlainText()
    assert "Paris" in shown
    assert "Rome" in shown
    assert "tokens a second" in loaded.progress.format()
    assert [m["role"] for m in loaded._messages] == ["user", "assistant"] * 2


def test_cancel_ends_an_answer_and_the_next_one_comes(app, loaded):
    ask(loaded, "Write a long story about a dragon, with many chapters.")
    wait(app, lambda: len(loaded._messages[-1]["content"]) > 20)

    loaded.cancel.click()
    wait(app, loaded.send.isEnabled)

    assert "[cancelled]" in loaded.transcript.toPlainText()
    ask(loaded, "Say hi.")
    wait(app, loaded.send.isEnabled)
    assert loaded._messages[-1]["content"]


def test_an_empty_line_asks_nothing(app, loaded):
    ask(loaded, "   ")

    assert loaded._messages == []


def test_a_model_that_is_not_there_is_told(app, window):
    window._worker.load("/nowhere/model.gguf")
    wait(app, window.transcript.toPlainText)

    assert "no such file" in window.transcript.toPlainText()
    assert not window.send.isEnabled()


def test_closing_while_it_loads_or_answers_ends_its_threads(app, example, monkeypatch):
    started = threading.Event()

    def load(name, progress):
        started.set()
        while True:
            progress("weights", 1, 2)
            time.sleep(0.005)

    monkeypatch.setattr(example.edgeinfer, "load", load)
    window = example.Window(example.Worker())
    window._worker.load("slow")
    assert started.wait(10)
    wait(app, lambda: window.progress.value() == 500)

    window.close()

    assert not window._worker._thread.is_alive()


def test_an_error_of_an_answer_leaves_the_window_usable(app, loaded, monkeypatch):
    def stream_chat(*args, **options):
        raise ModelNotFoundError("gone")

    monkeypatch.setattr(loaded._worker._model, "stream_chat", stream_chat)
    ask(loaded, "Hello?")
    wait(app, loaded.send.isEnabled)

    assert "[gone]" in loaded.transcript.toPlainText()
