"""Let a model choose how texts go on: the ending it finds likeliest, whole or by the token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating.measured import Measured, Progress, mean_of
from edgeinfer.evaluating.rows import negative_log_likelihoods
from edgeinfer.evaluating.tasks import Task
from edgeinfer.llm import Model


@dataclass(frozen=True, slots=True)
class Choice:
    """Shares of tasks where the right ending was chosen.

    accuracy: by the log-likelihood of the whole ending. accuracy_norm: by its mean over the
    ending's tokens, which does not prefer short ones.
    """

    accuracy: Measured
    accuracy_norm: Measured
    n_tasks: int


def choice(model: Model, tasks: Sequence[Task], *, progress: Progress | None = None) -> Choice:
    """Measure how often a model finds the right ending of each task likeliest.

    An ending is read behind its task's beginning and a space; what the endings have in common is
    computed once and does not count. Of equally likely endings the first is chosen.

    Args:
        model: what `edgeinfer.load` returned.
        tasks: from `parse_tasks`.
        progress: called as progress(n_done, n_tasks, accuracy_norm_so_far) after each task; what it
            raises ends the measurement.

    Raises:
        InvalidParameterError: there is no task, or a task's endings are the same.
        ContextOverflowError: an ending does not fit the model's context.
        NonFiniteError: the model computed NaN or infinity.
    """
    if not tasks:
        raise InvalidParameterError("tasks: found none (need at least 1)")
    right, right_norm = [], []
    for number, task in enumerate(tasks, 1):
        scores = log_likelihoods(model, task, where=f"task {number}")
        sums = [float(score.sum()) for score in scores]
        means = [float(score.mean()) for score in scores]
        right.append(int(np.argmax(sums)) == task.label)
        right_norm.append(int(np.argmax(means)) == task.label)
        if progress is not None:
            progress(number, len(tasks), mean_of(np.array(right_norm)).value)
    return Choice(mean_of(np.array(right)), mean_of(np.array(right_norm)), len(tasks))


def log_likelihoods(model: Model, task: Task, *, where: str = "task") -> list[np.ndarray]:
    """Return, for each ending, the log-probability of each token behind the common beginning."""
    ids = [model.tokenize(f"{task.ctx} {ending}") for ending in task.endings]
    n_common = 0
    while all(len(one) > n_common + 1 and one[n_common] == ids[0][n_common] for one in ids):
        n_common += 1
    if len(set(map(tuple, ids))) < len(ids):
        raise InvalidParameterError(f"{where}: found endings of the same tokens (need different)")
    n_common = max(1, n_common)  # nothing predicts the first token
    if min(map(len, ids)) <= n_common:
        raise InvalidParameterError(f"{where}: found an ending without a token (need one)")
    return [_log_probabilities(model, one, n_common) for one in ids]


def _log_probabilities(model: Model, ids: list[int], start: int) -> np.ndarray:
    parts = []
    for first, rows in model.stream_logits(ids[:-1], first=start - 1):
        labels = ids[first + 1 : first + 1 + len(rows)]
        parts.append(-negative_log_likelihoods(rows, labels))
    return np.concatenate(parts)
