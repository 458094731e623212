"""An estimate is what a loaded model then takes, and its verdict follows from what is free."""

import numpy as np
import pytest

import edgeinfer
from edgeinfer import sizing
from edgeinfer.arch import build_program
from edgeinfer.errors import InvalidParameterError, ResourceError, UnsupportedModelError
from edgeinfer.kernels.backend import KV_TYPES, PAGE_LEN, Limits, choose
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.sizing import estimate
from tests.arch import tiny
from tests.gguf_writer import write_gguf
from tests.kernels.random_weights import all_matrices

SIZES = {"n_embd": 256, "n_ff": 512, "dim": 128}
MODELS = {
    "llama": lambda: tiny.llama(**SIZES),
    "tied llama": lambda: tiny.llama(tied=True, **SIZES),
    "llama of experts": lambda: tiny.llama(n_experts=4, bias=False, **SIZES),
    "gemma3": lambda: tiny.gemma3(**SIZES),
}


def write_model(folder, name):
    metadata, arrays = MODELS[name]()
    return write_gguf(
        folder / "tiny.gguf", metadata, all_matrices(arrays, ["Q4_K", "Q8_0", "Q6_K"])
    )


@pytest.fixture(scope="module", params=MODELS)
def any_path(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("any"), request.param)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("one"), "llama")


def loaded_bytes(path, backend, *, n_ctx, kv_type="f16", activations="auto"):
    """Compile the model for one full context; return what it says it allocated."""
    limits = Limits(
        n_ctx=n_ctx, n_pages=-(-n_ctx // PAGE_LEN), kv_type=kv_type, activations=activations
    )
    with open_gguf(path) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        executable = choose(backend).compile(program, file.tensors, limits)
        try:
            work = getattr(executable, "work_bytes", None)
            return executable.weights_bytes, executable.state_bytes, work, executable.n_vocab
        finally:
            executable.close()


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("activations", ["auto", "fine"])
def test_native_model_takes_what_was_estimated(any_path, kv_type, activations):
    pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")
    options = {"n_ctx": 200, "kv_type": kv_type, "activations": activations}

    found = estimate(any_path, backend="native", **options)

    weights, state, work, n_vocab = loaded_bytes(any_path, "native", **options)
    assert found.weights_bytes == weights
    assert found.kv_bytes == state == found.kv_bytes_per_token[kv_type] * 4 * PAGE_LEN
    assert found.scratch_bytes == work - 511 * 4 * n_vocab  # 511 rows of logits are not touched
    assert found.n_bytes == weights + state + found.scratch_bytes


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_jit_model_takes_what_was_estimated(path, kv_type):
    pytest.importorskip("numba")

    found = estimate(path, n_ctx=200, kv_type=kv_type, backend="jit")

    weights, state, *_ = loaded_bytes(path, "jit", n_ctx=200, kv_type=kv_type)
    assert (found.weights_bytes, found.kv_bytes) == (weights, state)
    assert set(found.kv_bytes_per_token) == {"f32", "f16"}


def test_reference_keeps_pages_of_float32(any_path):
    found = estimate(any_path, n_ctx=200, backend="reference")

    assert found.kv_bytes == loaded_bytes(any_path, "reference", n_ctx=200)[1]
    assert found.weights_bytes > 4 * found.n_params * 0.9


def test_no_matrix_is_read(path, monkeypatch):
    asked = []
    monkeypatch.setattr("edgeinfer.kernels.native.backend.decode", asked.append)
    monkeypatch.setattr("edgeinfer.kernels.reference.weights.decode", asked.append)

    estimate(path)
    estimate(path, backend="reference")

    assert asked == []


def test_context_defaults_to_that_of_training_and_sequences_multiply(path):
    one, three = estimate(path), estimate(path, n_sequences=3)

    assert one.n_ctx == one.n_ctx_train == 256
    assert three.kv_bytes == 3 * one.kv_bytes
    assert three.n_bytes - one.n_bytes == 2 * one.kv_bytes


def test_a_full_context_reads_its_keys_and_values(path):
    found = estimate(path, n_ctx=256)

    read = found.token_bytes_full - found.token_bytes
    assert 0 < read <= found.kv_bytes


def with_free(monkeypatch, n_bytes):
    monkeypatch.setattr(sizing, "memory_bytes", lambda: (n_bytes, 1 << 40))


@pytest.fixture
def sizes(path):
    return estimate(path, n_ctx=256)


def test_what_fits_exactly_fits(path, sizes, monkeypatch):
    with_free(monkeypatch, sizes.n_bytes)

    assert estimate(path, n_ctx=256).verdict == "fits"


def test_a_context_that_does_not_fit_names_one_that_does(path, sizes, monkeypatch):
    with_free(monkeypatch, sizes.n_bytes - 1)

    found = estimate(path, n_ctx=256)

    assert found.verdict != "fits"
    assert found.n_ctx_fits == 192
    assert "a context of 192 tokens fits" in found.reason


def test_weights_beyond_memory_are_slow_where_they_can_be_read_again(path, sizes, monkeypatch):
    with_free(monkeypatch, sizes.n_bytes - sizes.weights_bytes)

    native = estimate(path, n_ctx=256)

    assert native.verdict == "slow"
    assert native.n_ctx_fits == 0
    assert "edgeinfer pack" in native.reason
    assert estimate(path, n_ctx=256, backend="reference").verdict == "cannot"


def test_without_room_for_the_context_it_cannot(path, sizes, monkeypatch):
    with_free(monkeypatch, sizes.kv_bytes)

    found = estimate(path, n_ctx=256)

    assert found.verdict == "cannot"
    assert "choose a smaller model" in found.reason


def test_weights_beyond_all_memory_are_refused_before_they_are_laid_out(
    smollm2_path, monkeypatch, caplog
):
    monkeypatch.setattr(sizing, "_swap_bytes", lambda: 0)
    monkeypatch.setattr(sizing, "memory_bytes", lambda: (1 << 20, 1 << 26))
    with pytest.raises(ResourceError, match=r"its weights take 9\d MB, and 1 MB .*edgeinfer pack"):
        edgeinfer.load(smollm2_path, pack=False)

    monkeypatch.setattr(sizing, "memory_bytes", lambda: (1 << 20, 1 << 30))
    edgeinfer.load(smollm2_path, pack=False, n_ctx=64).close()
    assert "its weights take" in caplog.text


@pytest.mark.parametrize("option", [{"n_ctx": 0}, {"n_sequences": 0}, {"n_ctx": 1 << 31}])
def test_sizes_out_of_range_are_refused(path, option):
    with pytest.raises(InvalidParameterError, match=next(iter(option))):
        estimate(path, **option)


def test_a_draft_counts_with_its_own_context(smollm2_path):
    options = {"n_ctx": 256, "n_sequences": 2, "kv_type": "q8_0"}
    alone = estimate(smollm2_path, **options)
    both = estimate(smollm2_path, **options, draft=smollm2_path)

    assert alone.draft_bytes == 0
    assert both.draft_bytes == alone.n_bytes
    assert both.n_bytes == 2 * alone.n_bytes
    assert (both.weights_bytes, both.kv_bytes) == (alone.weights_bytes, alone.kv_bytes)


def test_a_draft_of_another_vocabulary_is_refused(smollm2_path, gemma3_path):
    with pytest.raises(InvalidParameterError, match="draft"):
        estimate(smollm2_path, draft=gemma3_path)


def test_an_unknown_architecture_is_an_error(tiny_gguf):
    file = tiny_gguf(
        {"general.architecture": "novel", "novel.context_length": 8}, {"x": np.ones(4, np.float32)}
    )
    with pytest.raises(UnsupportedModelError, match="novel"):
        estimate(file)


def test_estimate_is_public():
    assert edgeinfer.estimate is estimate
