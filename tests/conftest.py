"""Fixtures every test may ask for: the real models, the shared reference data."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# OpenBLAS reads it when NumPy is imported. Its threads spin while they wait for each other: the
# reference's two thousand tokens take 14 s on one thread, and minutes on two of a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

from edgeinfer.loader.resolve import resolve
from tests.gguf_writer import write_gguf

# Whoever runs the tests in the background hands down an ignored Ctrl-C, which Python then leaves
# ignored; the tests of Ctrl-C, in this process and in its children, need the usual one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPO_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: llama architecture, BPE; pulled at first use (98 MB)."""
    return resolve("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M, Q4_K_M: gemma3 architecture, SPM; pulled at first use (253 MB)."""
    return resolve("gemma3-270m")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of vocabularies and reference logits that lies beside the checkout."""
    folder = REPO_ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs the reference data: no folder {folder}")
    return folder


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a small GGUF file: tiny_gguf(metadata, tensors, name="tiny.gguf", corrupt=...)."""

    def write(*args: Any, name: str = "tiny.gguf", **options: Any) -> Path:
        return write_gguf(tmp_path / name, *args, **options)

    return write
