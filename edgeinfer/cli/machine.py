"""Find out about this machine: its CPU, the CPUs and the memory it gives us."""

import os
import platform

from edgeinfer.kernels.cpus import affinity, quota_cpus
from edgeinfer.kernels.memory import memory_bytes

__all__ = [
    "affinity",
    "chosen_isa",
    "cpu_features",
    "cpu_name",
    "default_threads",
    "levels",
    "memory_bytes",
    "quota_cpus",
]


def cpu_name() -> str:
    """Return the CPU's own name for itself."""
    names = _cpuinfo("model name") or _cpuinfo("Model") or _cpuinfo("Hardware")
    return names or platform.processor() or platform.machine()


def cpu_features() -> frozenset[str]:
    """Return the features Linux names in /proc/cpuinfo; empty elsewhere."""
    return frozenset((_cpuinfo("flags") or _cpuinfo("Features") or "").split())


def levels() -> list[str]:
    """Return the instruction sets this CPU has of those edgeinfer has kernels for, best last."""
    features = cpu_features()
    found = ["scalar"]
    if {"avx2", "fma", "f16c"} <= features:
        found.append("avx2")
        if "avx_vnni" in features:
            found.append("avxvnni")
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= features:
            found.append("avx512")
    if {"asimd", "asimddp"} <= features:
        found.append("neon")
        if "i8mm" in features:
            found.append("i8mm")
    return found


def chosen_isa() -> tuple[str | None, str]:
    """Return the instruction set the compiled kernels use and why, or None and why not."""
    from edgeinfer.kernels.native import isa

    reason = isa.why_unavailable()
    if reason is not None:
        return None, reason
    chosen = isa.chosen()
    usable = ", ".join(isa.levels())
    if os.environ.get(isa.ENVIRONMENT):
        return chosen, f"{isa.ENVIRONMENT} asks for it ({usable} would work)"
    return chosen, f"the fastest of {usable}, which this CPU and this build have in common"


def default_threads() -> int | None:
    """Return how many threads a model gets when nobody says; None without compiled kernels."""
    from edgeinfer.kernels.native import isa, machine

    return machine.default_threads() if isa.why_unavailable() is None else None


def _cpuinfo(key: str) -> str | None:
    """Return the first value of a key of /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return None
