"""The report card: a file that bears it says what was measured."""

import math

import pytest

from edgeinfer.evaluating import divergence
from edgeinfer.evaluating.card import UNMEASURED, report_card
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.writer.gguf import plan, write
from tests.fake_llm import make_model

TEXT = "Nobody had told the paper boat about rivers, so it thought the gutter was the sea. " * 3


NAMES = {"reference": "a.gguf", "recipe": "Q4_0", "dataset": "b.txt", "text": TEXT}


def test_a_card_takes_as_many_bytes_before_it_is_known():
    with make_model() as one, make_model() as other:
        found = divergence(one, other, TEXT, n_ctx=4, chunks=1)
    assert math.isnan(found.kld.error)
    cards = [report_card(what, **NAMES) for what in (found, UNMEASURED)]
    assert len({len(plan(card, []).header) for card in cards}) == 1


def test_a_file_bears_the_figures(tmp_path):
    with make_model() as one, make_model() as other:
        found = divergence(one, other, TEXT, n_ctx=40)
    path = tmp_path / "x.gguf"
    with path.open("wb") as file:
        write(
            plan(report_card(found, **NAMES), []),
            iter(()),
            file.write,
        )

    with open_gguf(path) as file:
        metadata = file.metadata
        assert metadata.text("edgeinfer.report.reference") == "a.gguf"
        assert metadata.text("edgeinfer.report.dataset") == "b.txt"
        assert metadata.integer("edgeinfer.report.n_tokens") == found.n_tokens
        assert metadata.number("edgeinfer.report.kld") == 0.0
        assert metadata.number("edgeinfer.report.top1_agreement") == 1.0
        ppl = metadata.number("edgeinfer.report.ppl")
        assert ppl == pytest.approx(found.ppl.value, rel=1e-6) and math.isfinite(ppl)
