"""Show progress on one line of stderr, where a person sees it and no program reads it."""

import shutil
import sys
import time

REDRAW_S = 0.1
SHOW_AFTER_S = 0.4  # what is done sooner needs no bar


class Line:
    """A progress line, redrawn in place; silent where stderr is no terminal."""

    def __init__(self, *, show_after_s: float = SHOW_AFTER_S) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._start = time.monotonic()
        self._show_after_s = show_after_s
        self._drawn_at = 0.0
        self._drawn = False

    def update(self, what: str, done: float, total: float, unit: str = "") -> None:
        """Show that `done` of `total` (the same unit) is finished; total 0 means unknown."""
        if not self._live:
            return
        now = time.monotonic()
        finished = total > 0 and done >= total
        too_soon = now - self._start < self._show_after_s
        if too_soon or (now - self._drawn_at < REDRAW_S and not finished):
            return
        self._drawn_at = now
        self._drawn = True
        text = describe(what, done, total, unit, now - self._start)
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:width]}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line, so that what follows starts at the left edge."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


def describe(what: str, done: float, total: float, unit: str, elapsed_s: float) -> str:
    """Return the text of a progress line: a bar, a percentage, amounts and the time left."""
    if total <= 0:
        return f"{what} {amount(done, unit)}"
    share = min(max(done / total, 0.0), 1.0)
    bar = "#" * round(20 * share)
    left = ""
    if 0 < share < 1 and elapsed_s > 0:
        left = f", {duration(elapsed_s / share - elapsed_s)} left"
    amounts = f"{amount(done, unit)} of {amount(total, unit)}"
    return f"{what} [{bar:<20}] {100 * share:3.0f}% ({amounts}{left})"


def amount(value: float, unit: str) -> str:
    """Return a count with its unit; bytes ('B') in the decimal units of file sizes."""
    if unit != "B":
        return f"{value:,.0f} {unit}".rstrip()
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:.0f} B"


def duration(seconds: float) -> str:
    """Return a duration as '12 s' or '3:05'."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d}"


class DownloadProgress:
    """The progress callback of `loader.resolve`: a bar a download, one plain line otherwise."""

    def __init__(self) -> None:
        self._line = Line(show_after_s=0.0)

    def __call__(self, n_done: int, n_total: int, what: str) -> None:
        self._line.update(what, n_done, n_total, "B")

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._line.clear()
