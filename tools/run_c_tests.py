"""Compile edgeinfer/csrc with each tests/csrc/test_*.c and run them: sanitized, per ISA, or NEON.

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUILD: dict[str, Any] = runpy.run_path("edgeinfer/kernels/native/build.py")
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# Levels that run on any CPU with AVX2, their missing instructions emulated.
EMULATED = ("avxvnni", "avx512")
# Loops that are not unrolled look to gcc as if they might not run.
SIMDE = ["-DEI_SIMDE", "-Wno-maybe-uninitialized", "-Wno-psabi"]
# What /proc/cpuinfo must list for an ISA, best last.
CPU_FEATURES = {
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
    "avxvnni": {"avx2", "fma", "f16c", "bmi2", "avx_vnni"},
    "avx512": {"avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"},
    "neon": {"asimd", "asimddp", "asimdhp"},
}
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Target:
    """One way to compile and run the tests."""

    title: str
    compiler: str
    flags: list[str] = field(default_factory=list)
    runner: list[str] = field(default_factory=list)
    emulated: bool = False


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitize", action="store_true", help="address and undefined behaviour")
    parser.add_argument("--every-isa", action="store_true", help="each ISA this CPU has")
    parser.add_argument("--aarch64", action="store_true", help="cross-compiled, under qemu")
    parser.add_argument("--simde", action="store_true", help="AVX-VNNI and AVX-512 emulated")
    parser.add_argument("--kernel-tests", action="store_true", help="pytest of the kernels per ISA")
    asked = parser.parse_args()
    compiler = os.environ.get("CC", "gcc")
    levels = cpu_levels()
    failed = False
    if asked.sanitize:
        failed |= run(Target("sanitized", compiler, SANITIZE), levels)
    if asked.every_isa:
        failed |= run(Target("native", compiler), levels)
    missing = [level for level in EMULATED if level not in levels]
    emulated = list(EMULATED) if asked.simde else missing if asked.every_isa else []
    if emulated and platform.machine() == "x86_64":
        failed |= run(Target("emulated", compiler, SIMDE, emulated=True), emulated)
    if asked.aarch64:
        emulator = ["qemu-aarch64", "-cpu", "max"]
        target = Target("aarch64", "aarch64-linux-gnu-gcc", ["-static"], emulator)
        failed |= run(target, ["scalar", "neon"])
    if asked.kernel_tests:
        failed |= run_kernel_tests(levels)
    return int(failed)


def cpu_levels() -> list[str]:
    """Name the EDGEINFER_ISA levels this CPU can run, worst first."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    features = {word for line in text.splitlines() for word in line.partition(":")[2].split()}
    return ["scalar", *(isa for isa, need in CPU_FEATURES.items() if need <= features)]


def run(target: Target, levels: list[str]) -> bool:
    """Compile the library once, link and run each test at each level; return whether one failed."""
    tests = sorted(Path("tests/csrc").glob("test_*.c"))
    if not tests:
        sys.exit("run_c_tests: no tests/csrc/test_*.c here; run from the repository root")
    for tool in (target.compiler, *target.runner[:1]):
        if shutil.which(tool) is None:
            sys.exit(f"run_c_tests: {tool} is not installed")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        isas = compiled_isas(target, folder)
        macros = [f"-D{isa.macro}=1" for isa in isas]
        sources = [s for s in BUILD["sources"]() if (i := BUILD["isa_of"](s)) is None or i in isas]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda s: compile_one(target, s, macros, folder), sources))
            programs = list(
                pool.map(lambda t: link(target, str(t), objects, macros, folder), tests)
            )
        for level in levels:
            for program in programs:
                failed |= not passes(target, program, level)
    return failed


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


def passes(target: Target, program: Path, level: str) -> bool:
    """Run one test at one level and print a line about it."""
    env = os.environ | {"EDGEINFER_ISA": level}
    try:
        status = subprocess.run(
            [*target.runner, str(program)], env=env, timeout=TIMEOUT_S
        ).returncode
    except subprocess.TimeoutExpired:
        status = -1
    verdict = "ok" if status == 0 else f"FAILED with status {status}"
    print(f"{target.title:10} {level:8} {program.name}: {verdict}", flush=True)
    return status == 0


def run_kernel_tests(levels: list[str]) -> bool:
    """Run the Python tests of the kernels at every level; return whether one failed.

    The first test file goes through the levels by itself; the others run once a level.
    """
    runs = [(levels[-1], "tests/kernels/test_matmul.py")]
    runs += [(level, "tests/kernels/test_native_shapes.py") for level in levels]
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
