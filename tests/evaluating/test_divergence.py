"""KL divergence: figures of the plain formula, and models that cannot be compared."""

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating import divergence, perplexity
from edgeinfer.evaluating.windows import cut
from tests.fake_llm import make_model

TEXT = "Call me Ishmael. Some years ago, never mind how long precisely, I went to sea. " * 4


@pytest.fixture
def warmer(monkeypatch):
    """A model whose logits are a little smaller than those of its reference."""
    with make_model() as model:
        run = model._engine.executable.run
        model._engine.executable.run = lambda *args, **how: run(*args, **how) * np.float32(0.9)
        yield model


def test_a_model_does_not_differ_from_itself():
    with make_model() as one, make_model() as same:
        found = divergence(one, same, TEXT, n_ctx=40)

    assert (found.kld.value, found.max, found.top1_agreement.value) == (0.0, 0.0, 1.0)
    assert found.rms_dp.value == found.ln_ppl_ratio.value == 0.0
    assert found.ppl == found.ppl_reference


def test_figures_are_those_of_the_formulas(warmer):
    told = []
    with make_model() as reference:
        found = divergence(
            reference, warmer, TEXT, n_ctx=40, progress=lambda *now: told.append(now)
        )
        kld, dp = [], []
        for ids in cut(reference.tokenizer, TEXT, n_ctx=40, most=None).ids:
            p, q = (np.exp(model.logits(ids).astype(float)) for model in (reference, warmer))
            p, q = (x / x.sum(axis=1, keepdims=True) for x in (p, q))
            for i in range(20, 39):
                kld.append((p[i] * np.log(p[i] / q[i])).sum())
                dp.append(q[i][ids[i + 1]] - p[i][ids[i + 1]])
        assert found.ppl_reference == perplexity(reference, TEXT, n_ctx=40).ppl
        assert found.ppl == perplexity(warmer, TEXT, n_ctx=40).ppl

    assert found.kld.value == pytest.approx(np.mean(kld), rel=1e-9)
    assert found.kld.error == pytest.approx(np.std(kld, ddof=1) / len(kld) ** 0.5)
    assert found.median == pytest.approx(np.median(kld))
    assert found.p99 == pytest.approx(np.percentile(kld, 99))
    assert found.max == pytest.approx(max(kld))
    assert found.rms_dp.value == pytest.approx(np.sqrt(np.mean(np.square(dp))))
    assert found.top1_agreement.value == 1.0
    assert told[-1] == (found.n_chunks, found.n_chunks, found.kld.value)


def test_models_with_other_tokens_are_not_compared(monkeypatch):
    with make_model() as one, make_model(add_bos=True) as other:
        with pytest.raises(InvalidParameterError, match="different token ids"):
            divergence(one, other, TEXT, n_ctx=40)
        monkeypatch.setattr(other._engine.executable, "n_vocab", 98)
        with pytest.raises(InvalidParameterError, match="found 97 and 98 tokens"):
            divergence(one, other, TEXT, n_ctx=40)
