"""Perplexity and top-1: which tokens count, and that the figures are those of the plain formula."""

import math

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating import perplexity
from edgeinfer.evaluating.measured import Measured, exp_of
from edgeinfer.evaluating.windows import cut
from tests.fake_llm import BOS, make_model

TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 4


def test_windows_begin_with_bos_where_the_vocabulary_adds_it_and_leave_the_rest_out():
    with make_model(add_bos=True) as model:
        ids = model.tokenize(TEXT)
        windows = cut(model.tokenizer, TEXT, n_ctx=50, most=None)

    assert len(windows.ids) == len(ids) // 50
    assert windows.ids[0] == tuple(ids[:50])
    assert windows.ids[1] == (BOS, *ids[51:100])
    assert windows.labels(1) == tuple(ids[76:100])


def test_windows_are_the_text_itself_where_the_vocabulary_adds_nothing():
    with make_model() as model:
        ids = model.tokenize(TEXT)
        assert cut(model.tokenizer, TEXT, n_ctx=50, most=2).ids == (
            tuple(ids[:50]),
            tuple(ids[50:100]),
        )


def test_only_the_second_half_of_each_window_counts():
    told = []
    with make_model(add_bos=True) as model:
        found = perplexity(model, TEXT, n_ctx=50, progress=lambda *now: told.append(now))
        nll, hits = [], []
        for ids in cut(model.tokenizer, TEXT, n_ctx=50, most=None).ids:
            rows = model.logits(ids).astype(np.float64)
            for i in range(25, 49):
                nll.append(math.log(np.exp(rows[i]).sum()) - rows[i][ids[i + 1]])
                hits.append(rows[i].argmax() == ids[i + 1])

    assert found.n_tokens == len(nll) == 24 * found.n_chunks
    assert found.nll.value == pytest.approx(np.mean(nll), rel=1e-12)
    error = np.std(nll, ddof=1) / math.sqrt(len(nll))
    assert found.nll.error == pytest.approx(error, rel=1e-9)
    assert found.ppl.value == pytest.approx(math.exp(np.mean(nll)))
    assert found.ppl.error == pytest.approx(math.exp(np.mean(nll)) * error)
    assert found.top1.value == np.mean(hits)
    assert told[-1] == (found.n_chunks, found.n_chunks, found.ppl.value)


def test_a_model_that_predicts_nothing_right_has_an_infinite_perplexity():
    found = exp_of(Measured(800.0, 2.0))
    assert (found.value, found.error) == (math.inf, math.inf)
    assert exp_of(Measured(700.0, 0.0)).value == math.exp(700)


def test_chunks_are_the_first_ones():
    with make_model() as model:
        first = perplexity(model, TEXT[:100], n_ctx=50)
        assert perplexity(model, TEXT, n_ctx=50, chunks=2) == first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_ctx": 3}, "n_ctx: found 3 .need 4 to 512"),
        ({"n_ctx": 513}, "n_ctx: found 513 .need 4 to 512"),
        ({"n_ctx": 50, "chunks": 0}, "chunks: found 0"),
        ({}, "text: found 296 tokens .need at least 512"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, words):
    with make_model() as model, pytest.raises(InvalidParameterError, match=words):
        perplexity(model, TEXT, **options)
