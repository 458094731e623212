"""Saved predictions: as good as the model's own, and refused when they are damaged or of others."""

from pathlib import Path

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError, ModelFormatError, ModelNotFoundError
from edgeinfer.evaluating import divergence
from edgeinfer.evaluating.saved_logits import SavedLogits
from tests.fake_llm import make_model

TEXT = "In the beginning the logits were created. This made a lot of people very confident. " * 3


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "logits.bin"
    with make_model() as one, make_model() as same:
        divergence(one, same, TEXT, n_ctx=40, save_to=path)
    return path


def colder():
    model = make_model()
    run = model._engine.executable.run
    model._engine.executable.run = lambda *args, **how: run(*args, **how) * np.float32(1.1)
    return model


def test_divergence_from_saved_logits_is_that_from_the_model(saved):
    with make_model() as one, colder() as model, SavedLogits(saved) as logits:
        direct = divergence(one, model, TEXT, n_ctx=40)
        found = divergence(logits, model)
        assert divergence(logits, model, TEXT, n_ctx=40) == found
        assert divergence(logits, model, chunks=2).n_chunks == 2

    assert found.n_tokens == direct.n_tokens
    assert found.kld.value == pytest.approx(direct.kld.value, abs=1e-6)
    assert found.ppl == direct.ppl
    assert found.ppl_reference.value == pytest.approx(direct.ppl_reference.value, rel=1e-5)


def test_a_model_does_not_differ_from_what_was_saved_of_it(saved):
    with make_model() as model, SavedLogits(saved) as logits:
        assert abs(divergence(logits, model).kld.value) < 1e-7


def test_other_tokens_other_texts_and_other_windows_are_refused(saved, monkeypatch):
    with make_model() as model, SavedLogits(saved) as logits:
        with pytest.raises(InvalidParameterError, match="different token ids"):
            divergence(logits, model, "x" + TEXT)
        with pytest.raises(InvalidParameterError, match="windows of 40 tokens"):
            divergence(logits, model, n_ctx=50)
        monkeypatch.setattr(model._engine.executable, "n_vocab", 98)
        with pytest.raises(InvalidParameterError, match="found 97 and 98 tokens"):
            divergence(logits, model)


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "begins"), (8, "version"), (20, "bytes"), (70, "checksum of the header"), (-40, "window")],
)
def test_a_changed_byte_is_found(at, words, saved):
    data = bytearray(saved.read_bytes())
    data[at] ^= 1
    saved.write_bytes(data)
    with (
        pytest.raises(ModelFormatError, match=words),
        make_model() as model,
        SavedLogits(saved) as logits,
    ):
        divergence(logits, model)


def test_a_truncated_file_and_none_are_refused(saved):
    data = saved.read_bytes()
    for n_bytes in (0, 7, 60, 1000, len(data) - 1):
        saved.write_bytes(data[:n_bytes])
        with pytest.raises(ModelFormatError):
            SavedLogits(saved)
    with pytest.raises(ModelNotFoundError):
        SavedLogits(saved.with_name("none"))


def test_what_fails_midway_leaves_no_file(tmp_path):
    def stop(*now):
        raise KeyboardInterrupt

    path = tmp_path / "logits.bin"
    with make_model() as one, make_model() as same, pytest.raises(KeyboardInterrupt):
        divergence(one, same, TEXT, n_ctx=40, save_to=path, progress=stop)
    assert list(tmp_path.iterdir()) == []
