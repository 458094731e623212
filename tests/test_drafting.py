"""A model with a draft answers as it does alone; a draft that does not suit it is refused."""

import shutil

import pytest

import edgeinfer
from edgeinfer import sizing
from edgeinfer.arch import build_program
from edgeinfer.drafting import open_draft
from edgeinfer.engine import reading
from edgeinfer.engine.account import Account
from edgeinfer.engine.draft import Draft
from edgeinfer.engine.step_cost import StepCost
from edgeinfer.errors import (
    InvalidParameterError,
    ModelNotFoundError,
    ResourceError,
    UnsupportedModelError,
)
from edgeinfer.kernels.backend import Limits, choose
from tests.arch import tiny

PROMPT = "Once upon a time, in a small village by the sea, there lived"


@pytest.fixture
def exact():
    if not choose("auto").is_bit_exact:
        pytest.skip("this backend does not guess")


@pytest.fixture
def all_pays(monkeypatch):
    """Let every guess seem to pay; the answers must not show it."""
    monkeypatch.setattr(StepCost, "seconds", lambda self, n_tokens: 1.0)
    monkeypatch.setattr(Draft, "seconds", lambda self, counts: 0.0)
    monkeypatch.setattr(Account, "left_s", lambda self, plain_s: 1e9)
    monkeypatch.setattr(reading, "MOST_LENT", 1e9)
    monkeypatch.setattr(reading, "SHARE", 1e9)


def test_a_draft_changes_no_answer(exact, all_pays, smollm2_path):
    answers = []
    for options in ({"speculate": False}, {"draft": smollm2_path}):
        with edgeinfer.load(smollm2_path, n_ctx=256, **options) as model:
            answers += [model.generate(PROMPT, max_tokens=20, temperature=0)]
            answers += model.complete_many([PROMPT], n=2, max_tokens=20, seed=5, temperature=0.9)
    plain, drafted = answers[:3], answers[3:]

    assert [(a.text, a.tokens) for a in drafted] == [(a.text, a.tokens) for a in plain]
    assert drafted[0].timings.accepted_tokens > 10
    assert not any(a.timings.guessed_tokens for a in plain)


def test_a_load_with_a_draft_tells_of_its_weights_and_frees_them(exact, smollm2_path):
    stages = []
    model = edgeinfer.load(
        smollm2_path,
        n_ctx=64,
        draft=str(smollm2_path),
        progress=lambda stage, n_done, n_total: stages.append(stage),
    )
    draft = model._engine._guesser._draft
    model.close()

    assert {"weights", "draft"} <= set(stages)
    assert draft._executable._exec is None


def test_a_load_that_fails_in_its_draft_is_whole_the_next_time(exact, smollm2_path):
    def fail(stage, n_done, n_total):
        if stage == "draft":
            raise KeyError(stage)

    with pytest.raises(KeyError):
        edgeinfer.load(smollm2_path, n_ctx=64, draft=smollm2_path, progress=fail)
    with edgeinfer.load(smollm2_path, n_ctx=64, draft=smollm2_path) as model:
        assert model.generate(PROMPT, max_tokens=3, temperature=0).tokens


def test_a_draft_file_that_changes_is_an_error_before_it_is_read(exact, smollm2_path, tmp_path):
    copy = tmp_path / "draft.gguf"
    copy.write_bytes(smollm2_path.read_bytes())
    with edgeinfer.load(smollm2_path, n_ctx=64, draft=copy) as model:
        copy.unlink()
        with pytest.raises(ResourceError, match=r"draft\.gguf"):
            model.generate(PROMPT, max_tokens=3)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"speculate": False}, InvalidParameterError, "draft: .*speculate=False"),
        ({"backend": "reference"}, InvalidParameterError, "draft: backend 'reference'"),
        ({"draft": "smolm2"}, ModelNotFoundError, "smolm2"),
    ],
    ids=["off", "backend", "name"],
)
def test_a_draft_that_cannot_be_used_is_refused(exact, smollm2_path, options, error, named):
    with pytest.raises(error, match=named):
        edgeinfer.load(smollm2_path, **{"draft": smollm2_path, "n_ctx": 64} | options)


def test_a_draft_of_another_vocabulary_is_refused(exact, smollm2_path, gemma3_path):
    with pytest.raises(InvalidParameterError, match="vocabulary"):
        edgeinfer.load(smollm2_path, n_ctx=64, draft=gemma3_path)


def tiny_model(folder, arch):
    """Return the file of a tiny random model that has a vocabulary, and its limits."""
    metadata, arrays = getattr(tiny, arch)()
    metadata |= {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(tiny.N_VOCAB)],
        "tokenizer.ggml.eos_token_id": 2,
    }
    folder.mkdir()
    return tiny.open_model(folder, metadata, arrays)


def test_a_draft_with_recurrent_state_is_refused_and_a_model_with_it_is_not(exact, tmp_path):
    kernels, limits = choose("native"), Limits(n_ctx=64, n_pages=8)
    with tiny_model(tmp_path / "a", "llama") as one, tiny_model(tmp_path / "b", "lfm2") as other:
        programs = [build_program(f.metadata, f.tensors, n_ctx=64) for f in (one, other)]

        opened = open_draft(one.path, other, programs[1], limits, kernels)
        assert opened.n_vocab == tiny.N_VOCAB
        assert opened.cost > 0
        with pytest.raises(UnsupportedModelError, match=r"draft: .*recurrent state"):
            open_draft(other.path, one, programs[0], limits, kernels)


def test_a_draft_follows_no_further_than_it_was_trained(exact, tmp_path):
    limits = Limits(n_ctx=1000, n_pages=16, kv_type="q8_0")
    with tiny_model(tmp_path / "a", "llama") as file:
        program = build_program(file.metadata, file.tensors, n_ctx=1000)

        opened = open_draft(file.path, file, program, limits, choose("native"))

    assert (opened.limits.n_ctx, opened.limits.kv_type) == (256, "q8_0")


def test_room_for_a_draft_is_asked_for_beside_a_pack_too(
    exact, smollm2_path, tmp_path, monkeypatch
):
    if choose("auto").name != "native":
        pytest.skip("only the native backend packs")
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path))
    monkeypatch.setattr(sizing, "memory_bytes", lambda: (1000, 1000))
    monkeypatch.setattr(sizing, "_swap_bytes", lambda: 0)
    draft = tmp_path / "draft.gguf"
    shutil.copy(smollm2_path, draft)  # another time, so another pack
    with pytest.raises(ResourceError, match=r"draft\.gguf: its weights take"):
        edgeinfer.load(smollm2_path, n_ctx=64, pack="write", draft=draft)
    with edgeinfer.load(smollm2_path, n_ctx=64, draft=smollm2_path) as model:
        assert model.generate("a", max_tokens=1).tokens
