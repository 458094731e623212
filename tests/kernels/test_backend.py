"""Backends are chosen by name, and no batch reaches them that breaks a rule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Batch, Cancel, Limits, check_batch, choose

LIMITS = Limits(n_ctx=200, n_pages=6, n_batch=8)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


# Two sequences: positions 62 to 64 of the first, 0 and 1 of the second.
SOUND = Batch(
    tokens=ints(5, 96, 0, 7, 7),
    positions=ints(62, 63, 64, 0, 1),
    sequences=ints(1, 1, 1, 0, 0),
    page_tables=np.array([[3, -1], [0, 5]], np.int32),
    wanted=ints(2, 4),
)

BAD: list[tuple[str, Any]] = [
    ("tokens", ints(5, 97, 0, 7, 7)),
    ("tokens", ints(5, -1, 0, 7, 7)),
    ("tokens", np.array([5, 9, 0, 7, 7])),
    ("tokens", ints()),
    ("tokens", ints(*range(9))),
    ("positions", ints(62, 63, 64, 0)),
    ("positions", ints(198, 199, 200, 0, 1)),
    ("positions", ints(62, 63, 65, 0, 1)),
    ("positions", ints(62, 62, 63, 0, 1)),
    ("positions", ints(62, 63, 64, -1, 0)),
    ("sequences", ints(1, 0, 1, 0, 0)),
    ("sequences", ints(1, 1, 1, 2, 2)),
    ("sequences", ints(1, 1, 1, -1, -1)),
    ("page_tables", np.array([[3, -1], [0, 6]], np.int32)),
    ("page_tables", np.array([[3, -1], [0, -1]], np.int32)),
    ("page_tables", np.array([[3], [0]], np.int32)),
    ("page_tables", ints(3, 0)),
    ("wanted", ints(2, 5)),
    ("wanted", ints(4, 2)),
    ("wanted", ints(2, 2)),
    ("wanted", ints(-1)),
]


def test_a_sound_batch_passes() -> None:
    check_batch(SOUND, LIMITS, 97)
    check_batch(replace(SOUND, wanted=ints()), LIMITS, 97)


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_broken_batch_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=f"batch: {field}: found"):
        check_batch(replace(SOUND, **{field: value}), LIMITS, 97)


@pytest.mark.parametrize(
    "change", [{"n_ctx": 0}, {"n_pages": 1 << 31}, {"n_batch": -1}, {"n_threads": 513}]
)
def test_limits_are_checked(change: dict[str, int]) -> None:
    with pytest.raises(
        InvalidParameterError, match=rf"^{next(iter(change))}: found .* \(need [01] to "
    ):
        replace(LIMITS, **change)


def test_choose_finds_a_backend_by_name() -> None:
    assert choose("reference").name == "reference"
    assert choose("auto").why_unavailable() is None


@pytest.mark.parametrize("name", ["", "gpu", "../native", "backend"])
def test_an_unknown_backend_lists_the_known(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="auto, native, jit, reference"):
        choose(name)


def test_cancel_is_set_and_cleared() -> None:
    cancel = Cancel()
    assert not cancel.is_set
    cancel.set()
    assert cancel.is_set
    assert cancel.cell[0] == 1
    cancel.clear()
    assert not cancel.is_set
