"""Describe the compiled module: its C files, their flags, the declarations Python sees.

Executed by setup.py and by tools/run_c_tests.py as a script, never imported by the package.
"""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

CSRC = "edgeinfer/csrc"
MODULE = "edgeinfer.kernels.native._native"

# No contraction and no fast-math: the arithmetic contract promises the same bits on every ISA.
FLAGS = [
    "-O3",
    "-g0",  # Python's own flags ask for debug info, which is nine tenths of the module
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Werror=incompatible-pointer-types",  # kernels are called through tables of them
]
PYTHON_PROBE = "#include <Python.h>\nint probe;"
AVX2_FLAGS = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVX512_FLAGS = [
    *(f"-mavx512{feature}" for feature in ("f", "bw", "vl", "dq", "vnni")),
    "-mprefer-vector-width=512",
]


@dataclass(frozen=True)
class Isa:
    """One instruction set: its flags, and a program only a compiler that has it accepts."""

    name: str
    flags: list[str]
    probe: str

    @property
    def macro(self) -> str:
        """The macro that tells dispatch.c this ISA was compiled in."""
        return f"EI_HAVE_{self.name.upper()}"


ISAS = {
    isa.name: isa
    for isa in (
        Isa(
            "avx2",
            AVX2_FLAGS,
            "#include <immintrin.h>\n__m256 probe(__m256 x) { return _mm256_fmadd_ps(x, x, x); }",
        ),
        Isa(
            "avxvnni",
            [*AVX2_FLAGS, "-mavxvnni"],
            "#include <immintrin.h>\n"
            "__m256i probe(__m256i x) { return _mm256_dpbusd_avx_epi32(x, x, x); }",
        ),
        Isa(
            "avx512",
            AVX2_FLAGS + AVX512_FLAGS,
            "#include <immintrin.h>\n"
            "__m512i probe(__m512i x) { return _mm512_dpbusd_epi32(x, x, x); }",
        ),
        Isa(
            "neon",
            ["-march=armv8.2-a+dotprod+fp16"],
            "#include <arm_neon.h>\n"
            "int32x4_t probe(int32x4_t a, int8x16_t b) { return vdotq_s32(a, b, b); }",
        ),
        Isa(
            "i8mm",
            ["-march=armv8.2-a+dotprod+fp16+i8mm"],
            "#include <arm_neon.h>\n"
            "int32x4_t probe(int32x4_t a, int8x16_t b) { return vmmlaq_s32(a, b, b); }",
        ),
    )
}


def isa_of(source: str) -> Isa | None:
    """Return the ISA a source belongs to: isa/avx2.c and isa/avx2_matmul.c need avx2's flags."""
    path = Path(source)
    return ISAS.get(path.stem.split("_")[0]) if path.parent.name == "isa" else None


def sources() -> list[str]:
    """List the C files, relative to the repository root."""
    return sorted(p.as_posix() for p in Path(CSRC).glob("**/*.c"))


def headers() -> list[str]:
    """List everything the C files include; a change of any of them rebuilds all."""
    return sorted(p.as_posix() for p in Path(CSRC).glob("**/*.h"))


def declarations() -> str:
    """Cut the part of edgeinfer.h that Python sees."""
    text = Path(CSRC, "edgeinfer.h").read_text(encoding="utf-8")
    return text.partition("/* cdef begin */")[2].partition("/* cdef end */")[0]


def ffibuilder() -> FFI:
    """Make the builder that cffi's setuptools hook calls."""
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        MODULE,
        '#include "edgeinfer.h"',
        sources=sources(),
        depends=[*headers(), "setup.py", "edgeinfer/kernels/native/build.py"],
        include_dirs=[CSRC],
        libraries=["m"],
    )
    return builder


# A free-threaded Python has no stable ABI to build against.
WHEEL_OPTIONS = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"py_limited_api": "cp311"}
