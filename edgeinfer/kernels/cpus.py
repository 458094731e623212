"""Count the CPUs that this process may use, by its affinity and the quotas of its cgroups."""

import os
from pathlib import Path

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import MOST_THREADS

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def affinity() -> tuple[int, int]:
    """Return how many CPUs this process may use by affinity, and how many the machine has."""
    n_cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)), n_cpus
    return n_cpus, n_cpus


def quota_cpus() -> float | None:
    """Return the CPUs that the tightest cgroup (v2) around this process allows, if any does."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return None
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    if group is None:
        return None
    folder = CGROUP / group.lstrip("/")
    quotas = []
    # Inside a container the path may name groups of the host that cannot be seen.
    for place in [folder, *folder.parents]:
        if CGROUP not in [place, *place.parents]:
            break
        quotas += _quota_of(place / "cpu.max")
    return min(quotas, default=None)


def threads_or_default(n_threads: int | None) -> int:
    """Return how many threads work on what is no model's step; None and 0 say nothing.

    Raises InvalidParameterError for what is out of the range that models have.
    """
    if n_threads is not None and not 0 <= n_threads <= MOST_THREADS:
        raise InvalidParameterError(
            f"n_threads: found {n_threads} (need 1 to {MOST_THREADS}, or None for the default)"
        )
    return n_threads or default_threads()


def default_threads() -> int:
    """Return how many threads a model gets when nobody says; a quota counts to the nearest CPU."""
    allowed, quota = affinity()[0], quota_cpus()
    return allowed if quota is None else max(1, min(allowed, int(quota + 0.5)))


def _quota_of(file: Path) -> list[float]:
    try:
        quota, period = file.read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    except (OSError, ValueError, ZeroDivisionError):
        return []
