"""Models that transformers made, for the tests of this folder."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.arch.families import ROWS
from tests.arch.readers import N_VOCAB, READERS
from tests.convert.tokenizers import byte_level


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of `families/`."""
    sizes = {name: row.config.get("vocab_size", N_VOCAB) for name, row in ROWS.items()}
    return made(tmp_path_factory.mktemp("models"), sizes)


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of `readers.py`."""
    return made(tmp_path_factory.mktemp("readers"), dict.fromkeys(READERS, N_VOCAB))


def made(folder: Path, sizes: Mapping[str, int]) -> Path:
    """Make models in one process: transformers takes longer to import than they to make."""
    script = Path(__file__).with_name("make_models.py")
    done = subprocess.run(
        [sys.executable, script, folder, *sizes],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, n_vocab in sizes.items():
        (folder / name / "tokenizer.json").write_text(json.dumps(byte_level(n_vocab - 4)))
    return folder
