"""Fixtures of the command line's tests: a fake model behind `edgeinfer.model.load`."""

import sys

import pytest

from tests.cli import fake_model


@pytest.fixture
def model_file(tmp_path):
    """A file that answers to a model's name; the fake model does not read it."""
    path = tmp_path / "fake.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture
def models(monkeypatch):
    """The fake models that commands have loaded, in order."""
    loaded = []
    monkeypatch.setitem(sys.modules, "edgeinfer.model", None)  # restored after the test
    fake_model.install(loaded)
    return loaded
