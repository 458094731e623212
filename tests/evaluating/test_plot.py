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
    told = ["0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]
    assert labels_inside(axes) == told


def labels_inside(axes):
    low, high = axes.get_ylim()
    ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    return [label.get_text() for at, label in ticks if low <= at <= high]


def test_a_file_that_lost_nothing_leaves_numbers_at_the_axis():
    pytest.importorskip("matplotlib")
    points = [Point("a", 2, Measured(0.0, 0.0)), Point("b", 1, Measured(0.5, 0.1))]
    figure = picture(points, reference="some.gguf", over="1,020 tokens of some.txt")
    assert {"1e-08", "1e-06", "0.0001", "0.01"} <= set(labels_inside(figure.axes[0]))
