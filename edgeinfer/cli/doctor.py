"""`edgeinfer doctor`: say what this installation and this machine can do, and what is missing."""

import json
import os
import platform
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from importlib.util import find_spec
from typing import Annotated, Any

from typer import Exit, Option

from edgeinfer.cli import machine
from edgeinfer.cli.progress import amount

OPTIONAL = {
    "huggingface_hub": ("models named hf:owner/repo:QUANT", "pip install 'edgeinfer[hub]'"),
    "numba": ("the backend jit, for where no C compiler is", "pip install 'edgeinfer[numba]'"),
}
INDENT = 13
PACKAGES = (
    *("numpy", "cffi", "tokenizers", "sentencepiece"),
    *("jinja2", "psutil", "typer", "prompt_toolkit"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `way_out` says what to do where `ok` is False."""

    name: str
    text: str
    ok: bool = True
    way_out: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def doctor(
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, Option("--quick", help="Measure nothing.")] = False,
) -> None:
    """Check this installation and this machine.

    The exit code is 0 if models can run here, fast or slow, and 1 if they cannot.
    """
    findings = list(examine(quick=quick))
    if as_json:
        print(json.dumps({f.name: _as_object(f) for f in findings}, indent=1))
    else:
        for finding in findings:
            print_finding(finding)
    if not any(f.ok for f in findings if f.name == "backends"):
        raise Exit(1)


def print_finding(finding: Finding) -> None:
    """Print one finding: its name, a mark where something is wrong, its text, the way out."""
    text = finding.text + (f"\n-> {finding.way_out}" if finding.way_out else "")
    width = max(min(shutil.get_terminal_size().columns, 100) - INDENT, 40)
    lines = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    ]
    head = f"{finding.name:<10} {' ' if finding.ok else '!'}"
    print("\n".join([f"{head:<{INDENT}}{lines[0]}", *(" " * INDENT + line for line in lines[1:])]))


def examine(*, quick: bool) -> Iterator[Finding]:
    """Yield the findings in the order they are read."""
    checks: dict[str, Callable[[], Finding]] = {
        "version": _version,
        "packages": _packages,
        "cpu": _cpu,
        "kernels": lambda: _kernels(quick),
        "backends": _backends,
        "threads": _threads,
        "memory": lambda: _memory(quick),
        "cache": _cache,
    }
    for name, check in checks.items():
        try:
            yield check()
        except Exception as error:  # whatever is broken here is itself the finding
            yield Finding(name, f"{type(error).__name__}: {error}", ok=False)
    yield from _optional()


def _version() -> Finding:
    from edgeinfer import __version__

    text = (
        f"edgeinfer {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()} on {platform.machine()}"
    )
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return Finding("version", text, facts=facts)


def _packages() -> Finding:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = package_version(name)
        except PackageNotFoundError:
            versions[name] = None
    missing = [name for name, version in versions.items() if version is None]
    text = ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items())
    way_out = f"pip install {' '.join(missing)}" if missing else ""
    return Finding("packages", text, ok=not missing, way_out=way_out, facts=dict(versions))


def _cpu() -> Finding:
    levels = machine.levels()
    text = f"{machine.cpu_name()}\nhas the levels {', '.join(levels)}"
    way_out = ""
    if levels == ["scalar"] and platform.system() == "Linux":
        way_out = "the fast kernels need AVX2 with FMA (x86-64-v3) or ARMv8.2 with dotprod"
    facts = {"name": machine.cpu_name(), "levels": levels}
    return Finding("cpu", text, ok=not way_out, way_out=way_out, facts=facts)


def _kernels(quick: bool) -> Finding:
    from edgeinfer.kernels.native.machine import int8_peak

    isa, why = machine.chosen_isa()
    if isa is None:
        return Finding(
            "kernels",
            why,
            ok=False,
            way_out="with gcc installed: pip install --force-reinstall --no-deps edgeinfer",
            facts={"isa": None, "why": why},
        )
    text = f"compiled, using {isa}: {why}"
    facts: dict[str, Any] = {"isa": isa, "why": why}
    n_threads = machine.default_threads()
    if not quick and n_threads is not None:
        rate = int8_peak(isa, n_threads)
        facts |= {"int8_macs_per_s": rate, "int8_threads": n_threads}
        text += f"; {n_threads} threads multiply {rate / 1e9:.0f} billion pairs of bytes a second"
    return Finding("kernels", text, facts=facts)


def _backends() -> Finding:
    from edgeinfer.errors import EdgeInferError
    from edgeinfer.kernels.backend import BACKENDS, choose

    reasons: dict[str, str | None] = {}
    for name in BACKENDS:
        try:
            choose(name)
            reasons[name] = None
        except EdgeInferError as error:
            reasons[name] = str(error)
    able = [name for name, reason in reasons.items() if reason is None]
    text = f"{', '.join(able)} can run; auto takes {able[0]}" if able else "none can run"
    return Finding("backends", text, ok=bool(able), facts=dict(reasons))


def _threads() -> Finding:
    allowed, present = machine.affinity()
    quota = machine.quota_cpus()
    n_threads = machine.default_threads()
    default = f"{n_threads} by default" if n_threads is not None else "none without the kernels"
    limit = f"a CPU quota of {quota:.2f}" if quota is not None else "no CPU quota"
    text = f"{default}: affinity allows {allowed} of {present} CPUs, {limit}"
    facts = {"default": n_threads, "affinity": allowed, "cpus": present, "quota": quota}
    return Finding("threads", text, facts=facts)


def _memory(quick: bool) -> Finding:
    from edgeinfer.kernels.native.machine import READ_BYTES, read_bandwidth

    available, total = machine.memory_bytes()
    n_threads = machine.default_threads()
    text = f"{amount(available, 'B')} of {amount(total, 'B')} available"
    facts: dict[str, Any] = {"available_bytes": available, "total_bytes": total}
    if not quick and n_threads is not None and available > 4 * READ_BYTES:
        rate = read_bandwidth(n_threads)
        facts |= {"read_bytes_per_s": rate, "read_threads": n_threads}
        text += f"; {n_threads} threads read {rate / 1e9:.1f} GB/s"
        text += f"\na model of 1 GB writes at most {rate / 1e9:.0f} tokens a second"
    return Finding("memory", text, facts=facts)


def _cache() -> Finding:
    from edgeinfer.loader.cache import cache_folder
    from edgeinfer.loader.packs import kept

    folder = cache_folder()
    packs = [pack.n_bytes for pack in kept()]
    files = sorted(folder.rglob("*.gguf")) if folder.is_dir() else []
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
    lines = [f"{folder} ({len(files)} models, {amount(sum(sizes.values()), 'B')})"]
    lines += [f"{amount(size, 'B'):>9}  {name}" for name, size in sizes.items()]
    if packs:
        lines.append(f"{amount(sum(packs), 'B'):>9}  {len(packs)} packs (edgeinfer pack --list)")
    writable = os.access(_nearest_existing(str(folder)), os.W_OK)
    return Finding(
        "cache",
        "\n".join(lines),
        ok=writable,
        way_out="" if writable else "not writable: set EDGEINFER_CACHE to a folder that is",
        facts={
            "folder": str(folder),
            "models": sizes,
            "packs": len(packs),
            "packs_bytes": sum(packs),
            "writable": writable,
        },
    )


def _optional() -> Iterator[Finding]:
    for module, (purpose, way_out) in OPTIONAL.items():
        if find_spec(module) is None:
            yield Finding("optional", f"{module} is missing: {purpose}", way_out=way_out)


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _as_object(finding: Finding) -> dict[str, Any]:
    return {
        "ok": finding.ok,
        "text": finding.text,
        "way_out": finding.way_out,
        **finding.facts,
    }
