"""Scores of given tokens are the log-softmax of the logits, and those the sampler reports."""

import numpy as np
import pytest

from edgeinfer.engine import scoring_numpy
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.scoring import score
from edgeinfer.errors import InvalidParameterError, NonFiniteError

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


@pytest.mark.parametrize("n_vocab", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 4097])
@pytest.mark.parametrize("steps", [0, 2], ids=["distinct", "many equal"])
def test_c_and_numpy_give_the_same_bits(n_vocab, steps):
    native = pytest.importorskip("edgeinfer.kernels.native.scorer")
    rng = np.random.default_rng(n_vocab)
    for scale in (1, 30, 1000):
        logits = (rng.standard_normal(n_vocab) * scale).astype(np.float32)
        logits = np.round(logits * steps) / np.float32(steps) if steps else logits
        for n_top in {0, 1, min(5, n_vocab), min(64, n_vocab)}:
            token = int(rng.integers(n_vocab))
            found = native.score_row(logits, token, n_top)
            assert found == scoring_numpy.score_row(logits, token, n_top)


@pytest.mark.parametrize("module", ["engine.scoring_numpy", "kernels.native.scorer"])
@pytest.mark.parametrize(("token", "n_top"), [(-1, 0), (10, 0), (0, 65), (0, -1)])
def test_what_is_out_of_range_is_refused(module, token, n_top):
    score_row = pytest.importorskip(f"edgeinfer.{module}").score_row
    with pytest.raises(InvalidParameterError, match=f"{token} and {n_top}"):
        score_row(np.zeros(10, np.float32), token, n_top)


def test_more_than_the_vocabulary_is_all_of_it():
    found = score(np.zeros(3, np.float32), 1, 64)

    assert found.top == ((0, found.logprob), (1, found.logprob), (2, found.logprob))


@pytest.mark.parametrize("module", ["engine.scoring_numpy", "kernels.native.scorer"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_an_error(bad, module):
    score_row = pytest.importorskip(f"edgeinfer.{module}").score_row
    logits = row(0)
    logits[5] = bad
    with pytest.raises(NonFiniteError):
        score_row(logits, 0, 1)


def test_a_part_of_a_row_is_scored_as_a_row_of_its_own():
    rows = np.stack([row(1), row(2)]).T  # not contiguous

    assert score(rows[:, 0][:700], 3, 4) == score(row(1)[:700], 3, 4)
