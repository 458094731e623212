"""Keep what was measured in a file of JSON lines, so that a run that was cut short goes on.

A line is the answer of one process and the key that says which one. Knows nothing of its content.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class OutOfTimeError(Exception):
    """The run's time is over; what was measured so far is in the journal."""


class Journal:
    """Answers by key, in memory and in `path` if there is one.

    `minutes`: after that nothing new is begun (what has begun is ended).
    """

    def __init__(self, path: Path | None = None, minutes: float | None = None) -> None:
        self._path = path
        self._end_s = time.monotonic() + 60 * minutes if minutes is not None else None
        self._answers: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._answers[entry["key"]] = entry["answer"]

    def answer(self, key: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the answer of a key, measured if the journal lacks it."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._answers:
            if self._end_s is not None and time.monotonic() > self._end_s:
                raise OutOfTimeError
            self._answers[name] = measure()
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    line = {"key": name, "answer": self._answers[name], "at_s": time.time()}
                    file.write(json.dumps(line) + "\n")
        return self._answers[name]
