"""Read multiple-choice tasks: one JSON object a line, as HellaSwag's validation set has them."""

import json
from dataclasses import dataclass
from typing import Any, TypeGuard

from edgeinfer.errors import InvalidParameterError

LEAST_ENDINGS, MOST_ENDINGS = 2, 64


@dataclass(frozen=True, slots=True)
class Task:
    """A beginning, ways it might go on, and the index of the right one."""

    ctx: str
    endings: tuple[str, ...]
    label: int


def parse_tasks(text: str, *, where: str = "tasks") -> list[Task]:
    """Return the tasks of a JSONL text; empty lines are passed over.

    Each object has "ctx", a text; "endings", a list of texts; "label", an index or its digits.
    Others of its keys do not matter. Raises InvalidParameterError naming the line.
    """
    tasks = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            tasks.append(_task(line, f"{where}: line {number}"))
    if not tasks:
        raise InvalidParameterError(
            f'{where}: found no task (need lines such as {{"ctx": "He sat", "endings": '
            '["down.", "up the hill."], "label": 0}})'
        )
    return tasks


def _task(line: str, where: str) -> Task:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(f"{where}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidParameterError(f"{where}: found {type(found).__name__} (need an object)")
    ctx, endings, label = (found.get(key) for key in ("ctx", "endings", "label"))
    if not isinstance(ctx, str) or not ctx:
        raise InvalidParameterError(f"{where}: ctx: found {_shown(ctx)} (need a text)")
    if not _are_texts(endings) or not LEAST_ENDINGS <= len(endings) <= MOST_ENDINGS:
        raise InvalidParameterError(
            f"{where}: endings: found {_shown(endings)} (need {LEAST_ENDINGS} to {MOST_ENDINGS} "
            "texts)"
        )
    if isinstance(label, str) and label.isdecimal():
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(endings):
        raise InvalidParameterError(
            f"{where}: label: found {_shown(label)} (need 0 to {len(endings) - 1})"
        )
    return Task(ctx, tuple(endings), label)


def _are_texts(found: Any) -> TypeGuard[list[str]]:
    return isinstance(found, list) and all(isinstance(one, str) and one for one in found)


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 60 else text[:60] + "..."
