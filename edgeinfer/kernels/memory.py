"""Find how much memory this process may still take, by the machine and by its cgroups."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
LIMITLESS = 1 << 60  # cgroups of version 1 write nearly 2**63 for "no limit"


@dataclass(frozen=True, slots=True)
class _Names:
    """How a version of cgroups spells what is read here."""

    limit: str
    usage: str
    reclaimable: str  # a line of memory.stat


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Names("memory.max", "memory.current", "inactive_file")


def memory_bytes() -> tuple[int, int]:
    """Return the bytes this process may still take, and those it could have if it were alone.

    The tightest of the machine and the cgroups around the process decides each. File pages that
    nobody used lately count as available.
    """
    import psutil

    memory = psutil.virtual_memory()
    available, total = int(memory.available), int(memory.total)
    for limit, free in _groups():
        available, total = min(available, free), min(total, limit)
    return available, total


def _groups() -> Iterator[tuple[int, int]]:
    """Yield limit and what is left of it, in bytes, of each group around the process."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            yield from _limits_above(CGROUP, path, _V2)
        elif "memory" in controllers.split(","):
            yield from _limits_above(CGROUP / "memory", path, _V1)


def _limits_above(root: Path, path: str, names: _Names) -> Iterator[tuple[int, int]]:
    folder = root / path.lstrip("/")
    # Inside a container the path may name groups of the host that cannot be seen.
    for place in [folder, *folder.parents]:
        if root not in [place, *place.parents]:
            return
        limit = _number(place / names.limit)
        usage = _number(place / names.usage)
        if limit is not None and usage is not None and limit < LIMITLESS:
            yield limit, max(0, limit - max(0, usage - _reclaimable(place, names)))


def _reclaimable(place: Path, names: _Names) -> int:
    try:
        lines = (place / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == names.reclaimable)
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
