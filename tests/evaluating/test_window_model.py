"""A model read by windows: the rows of the model users hold, and of one with other weights."""

import numpy as np
import pytest

import edgeinfer
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.evaluating.divergence import rows_of
from edgeinfer.evaluating.window_model import WindowModel
from edgeinfer.evaluating.windows import cut
from edgeinfer.loader.gguf import open_gguf
from tests.arch import tiny
from tests.gguf_writer import write_gguf
from tests.shrinking.spoken import TEXT, write_spoken

pytest.importorskip("edgeinfer.kernels.native._native")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_spoken(tmp_path_factory.mktemp("spoken") / "in.gguf")


@pytest.fixture(scope="module")
def expected(path):
    """The first window of the text, and what the model says of its second half."""
    with edgeinfer.load(path, n_ctx=256, activations="fine") as model:
        windows = cut(model.tokenizer, TEXT, n_ctx=256, most=1)
        return windows, model.logits(windows.ids[0][:-1])[windows.first :]


@pytest.mark.parametrize("most_batch", [512, 100, 37])
def test_rows_are_those_of_the_model_however_a_window_is_cut(
    path, expected, most_batch, monkeypatch
):
    monkeypatch.setattr("edgeinfer.evaluating.window_model.MOST_BATCH", most_batch)
    windows, right = expected
    with WindowModel(path) as model:
        assert model.n_ctx == 256
        assert np.array_equal(rows_of(model, windows, 0), right)


def test_replaced_weights_stand_in_for_the_files(path, expected, tmp_path):
    windows, right = expected
    with open_gguf(path) as file:
        doubled = 2 * file.tensors["output.weight"].data.view(np.float32).reshape(tiny.N_VOCAB, -1)
    other = write_gguf(tmp_path / "other.gguf", {}, {"output.weight": doubled})
    with open_gguf(other) as file, WindowModel(path, replaced=file.tensors) as model:
        assert np.array_equal(rows_of(model, windows, 0), 2 * right)


def test_a_model_that_predicts_no_tokens_is_refused(tmp_path):
    path = write_spoken(tmp_path / "reads.gguf", pooling_type=1)
    with pytest.raises(UnsupportedModelError, match="predicts no tokens"):
        WindowModel(path, n_ctx=1 << 20)  # said first of all
