"""A chat window around a model: loading and reading show progress, every answer can be cancelled.

    pip install edgeinfer PySide6-Essentials
    python examples/desktop_chat.py [MODEL]

The window never waits. Loading and answering run on threads of their own and send signals; a window
that is closed stops both within milliseconds.
"""

import sys
import threading

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLineEdit,
    QMainWindow,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

import edgeinfer

STEPS = 1000  # of a progress bar: its integers are too small for bytes


class Stopped(Exception):
    """Raised inside a load that is no longer wanted."""


class Worker(QObject):
    """Owns the model; its methods return at once, and what happens comes as signals."""

    progressed = Signal(str, float)  # what is done, how much of it
    loaded = Signal(str)
    chunk = Signal(str)
    answered = Signal(str, str)  # why it ended, how fast it was
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._model: edgeinfer.Model | None = None
        self._stream = None
        self._closing = threading.Event()
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    def load(self, name: str) -> None:
        """Make a model ready."""
        self._start(self._load, name)

    def answer(self, messages: list[dict[str, str]]) -> None:
        """Answer a conversation."""
        self._cancelled.clear()
        self._start(self._answer, messages)

    def cancel(self) -> None:
        """Stop the answer; what it has so far stays."""
        self._cancelled.set()
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """Stop whatever runs, and free the model."""
        self._closing.set()
        self.cancel()
        if self._thread is not None:
            self._thread.join()
        if self._model is not None:
            self._model.close()

    def _start(self, work, argument) -> None:
        def guarded() -> None:
            try:
                work(argument)
            except Stopped:
                pass
            except edgeinfer.EdgeInferError as error:
                if not self._closing.is_set():
                    self.failed.emit(str(error))

        self._thread = threading.Thread(target=guarded, daemon=True)
        self._thread.start()

    def _load(self, name: str) -> None:
        def progress(stage: str, n_done: int, n_total: int) -> None:
            if self._closing.is_set():
                raise Stopped
            self.progressed.emit(f"{stage} %p%", n_done / max(1, n_total))

        self._model = edgeinfer.load(name, progress=progress)
        self.loaded.emit(self._model.path.name)

    def _answer(self, messages: list[dict[str, str]]) -> None:
        def progress(n_done: int, n_total: int, n_cached: int) -> None:
            self.progressed.emit("reading %p%", n_done / n_total)

        assert self._model is not None
        with self._model.stream_chat(
            messages, progress=progress, overflow="truncate_middle"
        ) as stream:
            self._stream = stream
            if self._cancelled.is_set():  # before there was a stream to cancel
                stream.cancel()
            for piece in stream:
                self.chunk.emit(piece.text)
        self._stream = None
        done = stream.completion
        self.answered.emit(done.finish_reason, f"{done.timings.tokens_per_s:.1f} tokens a second")


class Window(QMainWindow):
    """A conversation, a line to type on, and what the model is doing."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.setWindowTitle("edgeinfer")
        self.resize(640, 480)
        self._worker = worker
        self._messages: list[dict[str, str]] = []
        self._is_ready = False
        self.transcript = QPlainTextEdit(readOnly=True)
        self.entry = QLineEdit(placeholderText="Ask something")
        self.send = QPushButton("Send")
        self.cancel = QPushButton("Cancel")
        self.progress = QProgressBar(minimum=0, maximum=STEPS)
        self._lay_out()
        self._connect()
        self._show_idle(False)

    def _lay_out(self) -> None:
        line = QHBoxLayout()
        for widget in (self.entry, self.send, self.cancel):
            line.addWidget(widget)
        column = QVBoxLayout()
        column.addWidget(self.transcript)
        column.addWidget(self.progress)
        column.addLayout(line)
        whole = QWidget()
        whole.setLayout(column)
        self.setCentralWidget(whole)

    def _connect(self) -> None:
        self.entry.returnPressed.connect(self.ask)
        self.send.clicked.connect(self.ask)
        self.cancel.clicked.connect(self._worker.cancel)
        queued = Qt.ConnectionType.QueuedConnection  # signals come from the worker's thread
        self._worker.progressed.connect(self._show_progress, queued)
        self._worker.loaded.connect(self._show_loaded, queued)
        self._worker.chunk.connect(self._show_chunk, queued)
        self._worker.answered.connect(self._show_answered, queued)
        self._worker.failed.connect(self._show_failed, queued)

    def ask(self) -> None:
        """Send what was typed."""
        text = self.entry.text().strip()
        if not text or not self.send.isEnabled():
            return
        self.entry.clear()
        self._messages.append({"role": "user", "content": text})
        self._write(f"\n> {text}\n")
        self._messages.append({"role": "assistant", "content": ""})
        self._show_idle(False)
        self._worker.answer(self._messages[:-1])

    def closeEvent(self, event) -> None:
        """Stop the model with the window."""
        self._worker.close()
        event.accept()

    def _show_idle(self, is_idle: bool) -> None:
        self.send.setEnabled(is_idle)
        self.cancel.setEnabled(self._is_ready and not is_idle)

    def _show_progress(self, text: str, share: float) -> None:
        self.progress.setFormat(text)
        self.progress.setValue(round(STEPS * share))

    def _show_loaded(self, name: str) -> None:
        self._is_ready = True
        self.setWindowTitle(f"edgeinfer: {name}")
        self._rest("ready")

    def _show_chunk(self, text: str) -> None:
        self._messages[-1]["content"] += text
        self._write(text)

    def _show_answered(self, reason: str, speed: str) -> None:
        self._write("\n" if reason == "stop" else f"\n[{reason}]\n")
        self._rest(speed)

    def _show_failed(self, message: str) -> None:
        self._write(f"\n[{message}]\n")
        if self._is_ready:
            self._rest("ready")

    def _rest(self, text: str) -> None:
        self.progress.setValue(0)
        self.progress.setFormat(text)
        self._show_idle(True)

    def _write(self, text: str) -> None:
        self.transcript.moveCursor(QTextCursor.MoveOperation.End)
        self.transcript.insertPlainText(text)


def main() -> int:
    """Show the window until it is closed."""
    app = QApplication(sys.argv[:1])
    worker = Worker()
    window = Window(worker)
    window.show()
    worker.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
    return app.exec()


if __name__ == "__main__":
    raise SystemExit(main())
