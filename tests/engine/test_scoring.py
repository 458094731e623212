"""Scores of given tokens are the log-softmax of the logits, and those the sampler reports."""

import numpy as np
import pytest

from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.scoring import score
from edgeinfer.errors import NonFiniteError

N_VOCAB = 1000


def row(seed, *, steps=0):
    values = np.random.default_rng(seed).standard_normal(N_VOCAB).astype(np.float32) * 5
    return np.round(values * steps) / np.float32(steps) if steps else values


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_the_log_softmax(seed):
    logits = row(seed)
    exact = logits.astype(np.float64)
    exact = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())

    found = score(logits, seed * 7, 5)

    assert found.token == seed * 7
    assert found.logprob == pytest.approx(exact[seed * 7], abs=1e-12)
    best = np.argsort(-exact, kind="stable")[:5]
    assert [id for id, _ in found.top] == best.tolist()
    assert [p for _, p in found.top] == pytest.approx(exact[best].tolist(), abs=1e-12)


@pytest.mark.parametrize("n_top", [0, 1, 20, 64])
@pytest.mark.parametrize("steps", [0, 2], ids=["distinct", "many equal"])
def test_scores_equal_what_the_sampler_reports(n_top, steps):
    for seed in range(5):
        logits = row(seed, steps=steps)
        sampler = Sampler(SamplingParams(seed=seed), N_VOCAB)
        sampled = sampler.sample_with_logprobs(logits, [], 0, n_top)

        assert score(logits, sampled.token, n_top) == sampled


def test_more_than_the_vocabulary_is_all_of_it():
    found = score(np.zeros(3, np.float32), 1, 64)

    assert found.top == ((0, found.logprob), (1, found.logprob), (2, found.logprob))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_an_error(bad):
    logits = row(0)
    logits[5] = bad
    with pytest.raises(NonFiniteError):
        score(logits, 0, 1)
