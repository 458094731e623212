"""Show progress on one line of stderr, where a person sees it and no program reads it."""

import shutil
import sys
import threading
import time

REDRAW_S = 0.1
SHOW_AFTER_S = 0.4  # what is done sooner needs no bar


class Line:
    """A progress line, redrawn in place; silent where stderr is no terminal.

    Updates may come from any thread. What has said nothing since its first update is shown all the
    same: a long first step is when a person wonders.
    """

    def __init__(self, *, show_after_s: float = SHOW_AFTER_S) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._start_s = time.monotonic()
        self._show_after_s = show_after_s
        self._drawn_s = 0.0
        self._is_drawn = False
        self._latest: tuple[str, float, float, str] | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def update(self, what: str, done: float, total: float, unit: str = "") -> None:
        """Show that `done` of `total` (the same unit) is finished; total 0 means unknown."""
        if not self._live:
            return
        with self._lock:
            self._latest = (what, done, total, unit)
            now_s = time.monotonic()
            wait_s = self._start_s + self._show_after_s - now_s
            if wait_s > 0:
                self._draw_later(wait_s)
            elif now_s - self._drawn_s >= REDRAW_S or (0 < total <= done):
                self._draw(now_s)

    def clear(self) -> None:
        """Remove the line, so that what follows starts at the left edge."""
        with self._lock:
            self._latest = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._is_drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._is_drawn = False

    def _draw_later(self, wait_s: float) -> None:
        if self._timer is None:
            self._timer = threading.Timer(wait_s, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()

    def _on_timer(self) -> None:
        with self._lock:
            if self._latest is not None:
                self._draw(time.monotonic())

    def _draw(self, now_s: float) -> None:
        assert self._latest is not None
        self._drawn_s = now_s
        self._is_drawn = True
        text = describe(*self._latest, now_s - self._start_s)
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:width]}\x1b[K")
        sys.stderr.flush()


def describe(what: str, done: float, total: float, unit: str, elapsed_s: float) -> str:
    """Return the text of a progress line: a bar, a percentage, amounts and the time left."""
    if total <= 0:
        return f"{what} {amount(done, unit)}"
    share = min(max(done / total, 0.0), 1.0)
    bar = "#" * round(20 * share)
    left = ""
    if 0 < share < 1 and elapsed_s > 0:
        left = f", {duration(elapsed_s / share - elapsed_s)} left"
    done_amount = amount(done, unit if unit == "B" else "")
    amounts = f"{done_amount} of {amount(total, unit)}"
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
