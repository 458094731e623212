"""Fixtures every test may ask for: the real models, the shared reference data."""

from pathlib import Path

import pytest

from edgeinfer.loader.resolve import resolve

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
