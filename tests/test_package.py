"""The build, offline, from a copy of the source tree."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCE = shutil.ignore_patterns(
    ".*", "*.so", "*.egg-info", "__pycache__", "build", "dist", "models", "benchmarks"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if not (REPO_ROOT / "setup.py").exists():
        pytest.skip("needs the source tree")
    return Path(shutil.copytree(REPO_ROOT, tmp_path / "tree", ignore=NOT_SOURCE))


def setup(tree: Path, command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "setup.py", command, "--dist-dir", str(tree.parent)],
        cwd=tree,
        env=os.environ | {"CC": "/bin/false", "EDGEINFER_REQUIRE_NATIVE": "0"} | env,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_wheel_is_built_without_a_compiler_and_says_so(tree: Path) -> None:
    done = setup(tree, "bdist_wheel")

    assert done.returncode == 0, done.stderr
    assert "WITHOUT the native kernels" in done.stderr
    assert "apt-get install gcc" in done.stderr
    (wheel,) = tree.parent.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {p.relative_to(tree).as_posix() for p in tree.glob("edgeinfer/**/*.py")}
    assert modules <= names
    assert "edgeinfer/py.typed" in names
    assert [name for name in names if name.endswith((".so", ".c", ".h"))] == []
    assert "-cp311-abi3-" in wheel.name


def test_missing_compiler_fails_the_build_where_kernels_are_required(tree: Path) -> None:
    done = setup(tree, "bdist_wheel", EDGEINFER_REQUIRE_NATIVE="1")

    assert done.returncode != 0
    assert "no working C compiler" in done.stderr


def test_source_distribution_holds_what_a_build_reads(tree: Path) -> None:
    done = setup(tree, "sdist")

    assert done.returncode == 0, done.stderr
    (archive,) = tree.parent.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    sources = {p.relative_to(tree).as_posix() for p in tree.glob("edgeinfer/csrc/**/*.[ch]")}
    assert sources and sources <= names
    assert {"edgeinfer/kernels/native/build.py", "setup.py", "pyproject.toml"} <= names


TOY = {
    "edgeinfer.h": "/* cdef begin */\nint ei_answer(void);\nint ei_isas(void);\n/* cdef end */\n",
    "ops/answer_template.h": "int ei_answer(void) { return 1; }\n",
    "dispatch.c": (
        '#include "edgeinfer.h"\nint ei_isas(void) {\n    return 0'
        "\n#ifdef EI_HAVE_AVX2\n    + 1\n#endif"
        "\n#ifdef EI_HAVE_NEON\n    + 2\n#endif\n    ;\n}\n"
    ),
    "isa/scalar.c": '#include "../ops/answer_template.h"\n',
    "isa/avx2.c": "#include <immintrin.h>\n__m256 f(__m256 x) { return _mm256_fmadd_ps(x, x, x); }",
    "isa/neon.c": "#include <arm_neon.h>\nint32x4_t a(int32x4_t x, int8x16_t y) "
    "{ return vdotq_s32(x, y, y); }\n",
}


def build_toy(tree: Path) -> str:
    """Build the toy in place and return what it answers: "answer isas"."""
    subprocess.run(
        [sys.executable, "setup.py", "build_ext", "-i"], cwd=tree, check=True, capture_output=True
    )
    code = "from edgeinfer.kernels.native._native import lib; print(lib.ei_answer(), lib.ei_isas())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=tree, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_each_isa_has_its_flags_and_a_changed_template_rebuilds(tree: Path) -> None:
    shutil.rmtree(tree / "edgeinfer/csrc")
    for name, text in TOY.items():
        path = tree / "edgeinfer/csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for package in ("edgeinfer", "edgeinfer/kernels", "edgeinfer/kernels/native"):
        (tree / package / "__init__.py").write_text("__version__ = '0'\n")
    isas = {"x86_64": 1, "aarch64": 2}.get(platform.machine(), 0)

    assert build_toy(tree) == f"1 {isas}"
    assert [p.name for p in tree.glob("edgeinfer/**/*.so")] == ["_native.abi3.so"]

    (tree / "edgeinfer/csrc/ops/answer_template.h").write_text("int ei_answer(void) { return 2; }")
    assert build_toy(tree) == f"2 {isas}"
