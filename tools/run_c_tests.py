"""Compile edgeinfer/csrc with each tests/csrc/test_*.c and run them: sanitized, per ISA, per CPU.

A test is a C program that returns 0. Flags come from the builder of the compiled module, so the
tests run the code that is shipped.
"""

import argparse
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any

BUILD: dict[str, Any] = runpy.run_path("edgeinfer/kernels/native/build.py")
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# Levels that run on any CPU with AVX2, their missing instructions emulated.
EMULATED = ("avxvnni", "avx512")
# Emulated code is shipped to nobody: half the time to compile is all that -O3 would bring. Loops
# that are not unrolled look to gcc as if they might not run.
SIMDE = ["-O1", "-DEI_SIMDE", "-Wno-maybe-uninitialized", "-Wno-psabi"]
# What /proc/cpuinfo must list for an ISA, best last.
CPU_FEATURES = {
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
    "avxvnni": {"avx2", "fma", "f16c", "bmi2", "avx_vnni"},
    "avx512": {"avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
    "neon": {"asimd", "asimddp", "asimdhp"},
    "i8mm": {"asimd", "asimddp", "asimdhp", "i8mm"},
}
ARM_LEVELS = ("scalar", "neon", "i8mm")
DISPATCH = Path("tests/csrc/test_dispatch.c")
TIMEOUT_S = 600

Run = tuple[str, Sequence[str | Path], Mapping[str, str]]

# The CPUs that qemu imitates, and the level each of them must get.
X86_CPUS = {
    "Nehalem": "scalar",
    "SandyBridge": "scalar",
    "Haswell": "avx2",
    "Haswell,-fma": "scalar",
    "Haswell,-xsave": "scalar",  # a system that does not save the registers
    "max": "avx2",
}
ARM_CPUS = {"cortex-a53": "scalar", "cortex-a76": "neon", "max": "i8mm"}


@dataclass(frozen=True, slots=True)
class Target:
    """One way to compile the tests, and the levels and CPUs to run them at.

    Every test runs at each level, under `runner`; that of dispatch as each CPU, under `emulator`.
    """

    title: str
    compiler: str
    levels: Sequence[str] = ()
    flags: Sequence[str] = ()
    runner: Sequence[str] = ()
    emulated: bool = False
    emulator: str = ""
    cpus: Mapping[str, str] = field(default_factory=dict)


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitize", action="store_true", help="address and undefined behaviour")
    parser.add_argument("--every-isa", action="store_true", help="each ISA this CPU has")
    parser.add_argument("--aarch64", action="store_true", help="cross-compiled, under qemu")
    parser.add_argument("--simde", action="store_true", help="AVX-VNNI and AVX-512 emulated")
    parser.add_argument("--old-cpus", action="store_true", help="each CPU gets the level it has")
    parser.add_argument("--kernel-tests", action="store_true", help="pytest of the kernels per ISA")
    asked = parser.parse_args()
    failed = False
    for target in targets(asked):
        failed |= run(target)
    if asked.kernel_tests:
        failed |= run_kernel_tests(cpu_levels())
    return int(failed)


def targets(asked: argparse.Namespace) -> Iterator[Target]:
    """List what has to be compiled, each with all that is asked of it."""
    compiler, levels = os.environ.get("CC", "gcc"), cpu_levels()
    on_x86 = platform.machine() == "x86_64"
    if asked.sanitize:
        yield Target("sanitized", compiler, levels, SANITIZE)
    if asked.every_isa or (asked.old_cpus and on_x86):
        cpus = X86_CPUS if asked.old_cpus and on_x86 else {}
        at = levels if asked.every_isa else ()
        yield Target("native", compiler, at, emulator="qemu-x86_64", cpus=cpus)
    missing = [level for level in EMULATED if level not in levels]
    emulated = EMULATED if asked.simde else missing if asked.every_isa else ()
    if emulated and on_x86:
        yield Target("emulated", compiler, emulated, SIMDE, emulated=True)
    if asked.aarch64 or asked.old_cpus:
        yield Target(
            "aarch64",
            "aarch64-linux-gnu-gcc",
            ARM_LEVELS if asked.aarch64 else (),
            ["-static"],
            ["qemu-aarch64", "-cpu", "max"],
            emulator="qemu-aarch64",
            cpus=ARM_CPUS if asked.old_cpus else {},
        )


def cpu_levels() -> list[str]:
    """Name the EDGEINFER_ISA levels this CPU can run, worst first."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    features = {word for line in text.splitlines() for word in line.partition(":")[2].split()}
    return ["scalar", *(isa for isa, need in CPU_FEATURES.items() if need <= features)]


def run(target: Target) -> bool:
    """Compile the library once, link and run the tests; return whether one failed."""
    tests = sorted(Path("tests/csrc").glob("test_*.c"))
    if not tests:
        sys.exit("run_c_tests: no tests/csrc/test_*.c here; run from the repository root")
    tools = [target.compiler, *target.runner[:1], *([target.emulator] if target.cpus else [])]
    for tool in tools:
        if shutil.which(tool) is None:
            sys.exit(f"run_c_tests: {tool} is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = build(target, tests if target.levels else [DISPATCH], folder)
        runs = list(runs_of(target, programs, folder / DISPATCH.stem))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return not all(list(pool.map(lambda run: passes(target.title, *run), runs)))


def runs_of(target: Target, programs: Sequence[Path], dispatch: Path) -> Iterator[Run]:
    """List where each program runs: what that is called, the command, the environment."""
    for level in target.levels:
        for program in programs:
            command: list[str | Path] = [*target.runner, program]
            yield level, command, {"EDGEINFER_ISA": level}
    for cpu, best in target.cpus.items():
        command = [target.emulator, "-cpu", cpu, dispatch]
        yield f"{cpu} ({best})", command, {"EI_EXPECT_BEST": best}


def build(target: Target, tests: Sequence[Path], folder: Path) -> list[Path]:
    """Compile the library and link each test with it; return the programs."""
    isas = compiled_isas(target, folder)
    macros = [f"-D{isa.macro}=1" for isa in isas]
    sources = [s for s in BUILD["sources"]() if (i := BUILD["isa_of"](s)) is None or i in isas]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda s: compile_one(target, s, macros, folder), sources))
        return list(pool.map(lambda t: link(target, str(t), objects, macros, folder), tests))


def compiled_isas(target: Target, folder: Path) -> list[Any]:
    """Keep the ISAs the compiler accepts, as setup.py does."""
    if target.emulated:
        return [BUILD["ISAS"][name] for name in ("avx2", *EMULATED)]
    kept = []
    for isa in BUILD["ISAS"].values():
        source = folder / f"probe_{isa.name}.c"
        source.write_text(isa.probe + "\n", encoding="utf-8")
        command = [target.compiler, *isa.flags, "-c", str(source), "-o", f"{source}.o"]
        if subprocess.run(command, capture_output=True).returncode == 0:
            kept.append(isa)
    return kept


def flags_of(target: Target, source: str) -> list[str]:
    """Return the compile flags of one source; an emulated level is AVX2 code."""
    isa = BUILD["isa_of"](source)
    if isa is None:
        extra = []
    elif target.emulated and isa.name in EMULATED:
        extra = BUILD["AVX2_FLAGS"]
    else:
        extra = isa.flags
    include = ["-I", BUILD["CSRC"], "-I", "tests/csrc"]
    return [*BUILD["FLAGS"], *extra, *include, *target.flags]


def compile_one(target: Target, source: str, macros: list[str], folder: Path) -> str:
    made = str(folder / (source.replace("/", "_") + ".o"))
    command = [target.compiler, *flags_of(target, source), *macros, "-c", source, "-o", made]
    subprocess.run(command, check=True)
    return made


def link(target: Target, test: str, objects: list[str], macros: list[str], folder: Path) -> Path:
    program = folder / Path(test).stem
    command = [target.compiler, *flags_of(target, test), *macros, test, *objects]
    subprocess.run([*command, "-o", str(program), "-lm"], check=True)
    return program


def passes(title: str, where: str, command: Sequence[str | Path], env: Mapping[str, str]) -> bool:
    """Run one test and print a line about it, and what it complained about if it failed."""
    outer = {name: value for name, value in os.environ.items() if name != "EDGEINFER_ISA"}
    try:
        done = subprocess.run(command, env=outer | dict(env), stderr=PIPE, timeout=TIMEOUT_S)
        status, complaint = done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        status, complaint = -1, error.stderr or b""
    if status:
        sys.stderr.buffer.write(complaint)
    verdict = "ok" if status == 0 else f"FAILED with status {status}"
    print(f"{title:10} {where:23} {Path(command[-1]).name}: {verdict}", flush=True)
    return status == 0


def run_kernel_tests(levels: list[str]) -> bool:
    """Run the Python tests of the kernels at every level; return whether one failed.

    The first test file goes through the levels by itself; the others run once a level. At the best
    one the whole suite runs them.
    """
    runs = [(levels[-1], "tests/kernels/test_matmul.py")]
    runs += [(level, "tests/kernels/test_native_shapes.py") for level in levels[:-1]]
    failed = False
    for level, tests in runs:
        print(f"pytest {tests} at EDGEINFER_ISA={level}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", tests]
        env = os.environ | {"EDGEINFER_ISA": level}
        failed |= subprocess.run(command, env=env).returncode != 0
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"run_c_tests: could not compile: {' '.join(error.cmd)}")
