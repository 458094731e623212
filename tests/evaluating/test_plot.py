"""The picture of files: names that can be read, beside their marks."""

import pytest

from edgeinfer.evaluating.measured import Measured
from edgeinfer.evaluating.plot import Point, picture, short

RECIPES = {
    "Q2_K": (3.18, 0.35),
    "Q3_K_S": (3.66, 0.16),
    "Q3_K_M": (4.02, 0.09),
    "Q3_K_L": (4.32, 0.08),
    "IQ4_XS": (4.45, 0.035),
    "Q4_0": (4.66, 0.055),
    "IQ4_NL": (4.68, 0.034),
    "Q4_K_S": (4.69, 0.032),
    "Q4_K_M": (4.92, 0.026),
    "Q8_0": (8.54, 0.0006),
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a-b.Q4_0", "a-b.Q4_K", "a-b.F16"], ["Q4_0", "Q4_K", "F16"]),
        (["a-Q4_0", "a-Q4_K"], ["Q4_0", "Q4_K"]),
        (["one-model"], ["one-model"]),
        (["same", "same"], ["same", "same"]),
        (["a-b", "a-b-c"], ["a-b", "a-b-c"]),
        (["x", "y"], ["x", "y"]),
    ],
)
def test_names_lose_what_all_begin_with(names, expected):
    assert short(names) == expected


def test_names_cover_nothing_and_stay_inside():
    pytest.importorskip("matplotlib")
    points = [
        Point(f"Some-Model-8B-Instruct-{name}", int(size * 1e9), Measured(kld, kld / 20))
        for name, (size, kld) in RECIPES.items()
    ]
    figure = picture(points, reference="some.gguf", over="1,020 tokens of some.txt")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.texts] == list(RECIPES)
    boxes = [label.get_window_extent() for label in axes.texts]
    for i, box in enumerate(boxes):
        assert box.count_overlaps(boxes) == 1, i  # itself
        assert figure.bbox.x0 < box.x0 and box.x1 <= figure.bbox.x1
    assert axes.get_xlabel() == "size of the file, GB"
