"""Draw what files lost against what they take, as a PNG: needs the extra `eval`."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgeinfer.errors import BackendError
from edgeinfer.evaluating.measured import Measured

INK, MUTED, MARK = "#1f2328", "#6e7781", "#2f6fb3"


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
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    ordered = sorted(points, key=lambda point: point.n_bytes)
    sizes = [point.n_bytes / 1e6 for point in ordered]
    values = [max(point.kld.value, 1e-9) for point in ordered]
    errors = [point.kld.error for point in ordered]
    axes.errorbar(sizes, values, yerr=errors, fmt="o", ms=6, color=MARK, ecolor=MUTED, capsize=3)
    axes.set_yscale("log")
    axes.margins(x=0.14, y=0.12)
    for point, x, y in zip(ordered, sizes, values, strict=True):
        # beside the mark: smaller files lie above it and larger ones below
        axes.annotate(
            point.name,
            (x, y),
            xytext=(7, 3),
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel("size of the file, MB", color=INK)
    axes.set_ylabel("KL divergence, nats", color=INK)
    axes.set_title(f"Divergence from {reference}, {over}", fontsize=10, color=INK, loc="left")
    axes.grid(True, which="major", color="#d8dee4", linewidth=0.6)
    axes.tick_params(colors=MUTED, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png")
