"""Multiple choice: which ending is chosen, what is computed, and which lines are no tasks."""

import json

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating import choice, parse_tasks
from edgeinfer.evaluating.choice import log_likelihoods
from edgeinfer.evaluating.tasks import Task
from tests.fake_llm import make_model

CTX = "The captain of the paper boat looked at the grey sky over the gutter, and then he said"
TASKS = [
    Task(CTX, ("sail on.", "nothing at all to anybody.", "that it would rain."), 0),
    Task(CTX, ("stop.", "nothing of the kind, for he was made of paper too."), 1),
    Task("Two and two make", ("four", "five", "a company"), 2),
]


def by_hand(model, task):
    """Score each ending by the rows of its whole text, computed afresh."""
    ids = [model.tokenize(f"{task.ctx} {ending}") for ending in task.endings]
    start = len(model.tokenize(f"{task.ctx} "))
    while len({tuple(one[: start + 1]) for one in ids}) == 1:
        start += 1
    scores = []
    for one in ids:
        rows = model.logits(one).astype(float)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        scores.append(np.array([rows[i - 1][one[i]] for i in range(start, len(one))]))
    return scores


def test_the_likeliest_ending_is_chosen_whole_and_by_the_token():
    with make_model(n_pages=32) as model:
        found = choice(model, TASKS)
        scores = [by_hand(model, task) for task in TASKS]
        for task, expected in zip(TASKS, scores, strict=True):
            for one, other in zip(log_likelihoods(model, task), expected, strict=True):
                assert one == pytest.approx(other)

    labels = [task.label for task in TASKS]
    sums = [int(np.argmax([s.sum() for s in each])) for each in scores]
    means = [int(np.argmax([s.mean() for s in each])) for each in scores]
    assert found.accuracy.value == np.mean(np.equal(sums, labels))
    assert found.accuracy_norm.value == np.mean(np.equal(means, labels))
    assert found.n_tasks == 3


def test_what_endings_share_is_computed_once():
    with make_model(n_pages=32) as model:
        n_shared = len(model.tokenize(CTX))
        log_likelihoods(model, TASKS[0])
        n_computed = sum(sum(step) for step in model._engine.executable.steps)

    n_endings = sum(len(ending) for ending in TASKS[0].endings)
    assert n_computed < n_shared + n_endings + 8 * len(TASKS[0].endings)


def test_endings_of_the_same_tokens_are_refused():
    with (
        make_model() as model,
        pytest.raises(InvalidParameterError, match="task 1: found endings of"),
    ):
        choice(model, [Task("a", ("b", "b"), 0)])


def test_tasks_are_lines_of_json_and_labels_may_be_texts():
    lines = [
        {"ctx": "a", "endings": ["b", "c"], "label": 1, "ind": 24},
        {"ctx": "d", "endings": ["e", "f", "g"], "label": "2"},
    ]
    text = "\n\n".join(map(json.dumps, lines)) + "\n"
    assert parse_tasks(text) == [Task("a", ("b", "c"), 1), Task("d", ("e", "f", "g"), 2)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "no task"),
        ("{", "line 1: not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "found list"),
        ('{"endings": ["a", "b"], "label": 0}', "ctx: found None"),
        ('{"ctx": "a", "endings": ["b"], "label": 0}', "endings: found"),
        ('{"ctx": "a", "endings": ["b", 1], "label": 0}', "endings: found"),
        ('{"ctx": "a", "endings": ["b", "c"], "label": 2}', "label: found 2 .need 0 to 1"),
        ('{"ctx": "a", "endings": ["b", "c"], "label": true}', "label: found True"),
        ('{"ctx": "a", "endings": ["b", "c"]}', "label: found None"),
    ],
)
def test_lines_that_are_no_tasks_are_refused(line, words):
    with pytest.raises(InvalidParameterError, match=words):
        parse_tasks(line)
