"""The build, from a copy of the source tree, offline, with no compiler that works."""

import os
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
