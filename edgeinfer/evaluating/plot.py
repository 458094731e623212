"""Draw what files lost against what they take, as a PNG: needs the extra `eval`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgeinfer.errors import BackendError
from edgeinfer.evaluating.measured import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, MARK = "#1f2328", "#6e7781", "#2f6fb3"
LEAST = 1e-9  # nats: a logarithmic axis has no 0
STEPS = (1, 2, 5)  # of each power of 10, what is written at the axis
MOST_SPAN = 3e3  # of the axis; beyond it, the powers of 10 alone have room
SEPARATORS = "-. "
MARK_PX = 8  # half of what a mark takes
# Where a name may stand beside its mark, in points, the best first; and which of its ends is there.
SIDES: tuple[tuple[float, float, Literal["left", "right", "center"]], ...] = (
    (7, 3, "left"),
    (-7, -10, "right"),
    (7, -10, "left"),
    (-7, 3, "right"),
    (0, 8, "center"),
    (0, -16, "center"),
    (10, 14, "left"),
    (-10, -21, "right"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One file: its name, its bytes, its divergence from the reference."""

    name: str
    n_bytes: int
    kld: Measured


@dataclass(frozen=True, slots=True)
class Plotted:
    """What was drawn, and where."""

    points: tuple[Point, ...]
    file: str


def check_installed() -> None:
    """Raise BackendError if matplotlib is not there: before hours are spent on what to draw."""
    if find_spec("matplotlib") is None:
        raise BackendError("plot: matplotlib is not installed: pip install 'edgeinfer[eval]'")


def draw(points: Sequence[Point], path: Path, *, reference: str, over: str) -> None:
    """Write a PNG of KL divergence, on a logarithmic axis, against size.

    `over` says what was measured on. Raises BackendError if matplotlib is not installed.
    """
    check_installed()
    picture(points, reference=reference, over=over).savefig(path, format="png")


def picture(points: Sequence[Point], *, reference: str, over: str) -> "Figure":
    """Return what `draw` writes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    ordered = sorted(points, key=lambda point: point.n_bytes)
    unit, n_unit = ("GB", 1e9) if ordered[-1].n_bytes >= 2e9 else ("MB", 1e6)
    sizes = [point.n_bytes / n_unit for point in ordered]
    values = [max(point.kld.value, LEAST) for point in ordered]
    errors = [point.kld.error for point in ordered]
    axes.errorbar(sizes, values, yerr=errors, fmt="o", ms=6, color=MARK, ecolor=INK, capsize=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(
        LogLocator(subs=STEPS if max(values) < MOST_SPAN * min(values) else (1,))
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.margins(x=0.08, y=0.12)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x:.3g}" if x < 100 else f"{x:,.0f}")
    )
    axes.set_xlabel(f"size of the file, {unit}", color=INK)
    axes.set_ylabel("KL divergence, nats a token; bars: standard error", color=INK)
    axes.set_title(f"Divergence from {reference}, {over}", fontsize=10, color=INK, loc="left")
    axes.grid(True, which="major", color="#d8dee4", linewidth=0.6)
    axes.tick_params(colors=MUTED, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    _label(figure, list(zip(sizes, values, strict=True)), short([p.name for p in ordered]))
    return figure


def short(names: Sequence[str]) -> list[str]:
    """Return names without what all of them begin with, as files of one model do."""
    same = [len(set(letters)) == 1 for letters in zip(*names, strict=False)]
    n_same = same.index(False) if False in same else 0  # one name, or one all others begin with
    n = max(names[0].rfind(separator, 0, n_same) for separator in SEPARATORS) + 1
    return [name[n:] for name in names]


def _label(figure: "Figure", places: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """Write each name beside its mark, where it covers no mark and no other name if it can be."""
    from matplotlib.transforms import Bbox

    (axes,) = figure.axes
    figure.draw_without_rendering()  # from here on it is known where marks are
    figure.set_layout_engine("none")
    marks = [
        Bbox.from_bounds(x - MARK_PX, y - MARK_PX, 2 * MARK_PX, 2 * MARK_PX)
        for x, y in axes.transData.transform(places)
    ]
    taken: list[Bbox] = []
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        label = axes.annotate(
            name, place, textcoords="offset points", xytext=SIDES[0][:2], fontsize=9, color=INK
        )
        others = [*taken, *marks[:i], *marks[i + 1 :]]
        costs = []
        for x, y, side in SIDES:
            label.set_position((x, y))
            label.set_horizontalalignment(side)
            box = label.get_window_extent()
            is_out = box.x0 < axes.bbox.x0 or box.x1 > figure.bbox.x1 or box.y0 < axes.bbox.y0
            costs.append(box.count_overlaps(others) + 2 * is_out)
            if costs[-1] == 0:
                break
        x, y, side = SIDES[costs.index(min(costs))]
        label.set_position((x, y))
        label.set_horizontalalignment(side)
        taken.append(label.get_window_extent())
