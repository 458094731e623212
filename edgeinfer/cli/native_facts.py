"""Ask the compiled kernels what they chose, where they are there; explain it where they are not."""

from edgeinfer.cli import machine


def chosen_isa() -> tuple[str | None, str]:
    """Return the instruction set the kernels use, or None, and why."""
    from edgeinfer.kernels.backend import choose

    choose("native")
    return None, ""


def default_threads() -> int:
    """Return how many threads a model gets when nobody says."""
    allowed, _ = machine.affinity()
    quota = machine.quota_cpus()
    return max(1, min(allowed, round(quota) if quota else allowed))
