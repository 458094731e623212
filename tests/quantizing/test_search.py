"""Formats that fit a size: never more bytes than allowed, the noise where it costs least."""

import itertools

import numpy as np
import pytest

from edgeinfer import quantize
from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.imatrix import Imatrix, Sums
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.search import (
    LADDER,
    Option,
    _hull,
    fit_bytes,
    fit_cost,
    measured,
    weighed,
)
from edgeinfer.writer.imatrix import write_imatrix
from tests.arch import tiny
from tests.gguf_writer import write_gguf

pytest.importorskip("edgeinfer.kernels.native._native")

OPTIONS = {
    "a": [Option("Q8_0", 800, 0.0), Option("Q4_K", 400, 1.0), Option("Q2_K", 200, 9.0)],
    "b": [Option("Q8_0", 800, 0.0), Option("Q4_K", 400, 2.0), Option("Q2_K", 200, 5.0)],
    "c": [Option("Q8_0", 90, 0.0), Option("Q4_K", 50, 8.0)],
}


def total(chosen, what):
    return sum(
        getattr(option, what)
        for name, fmt in chosen.items()
        for option in OPTIONS[name]
        if option.format == fmt
    )


@pytest.mark.parametrize("most", [450, 500, 700, 890, 1000, 1290, 1300, 1690, 5000])
def test_no_more_bytes_than_allowed_and_near_the_least_cost(most):
    found = fit_bytes(OPTIONS, most)
    chosen = found.formats
    assert total(chosen, "n_bytes") == found.n_bytes <= most
    assert total(chosen, "cost") == found.cost
    every = [
        dict(zip(OPTIONS, c, strict=True))
        for c in itertools.product(("Q8_0", "Q4_K", "Q2_K"), repeat=3)
    ]
    fitting = [c for c in every if c["c"] != "Q2_K" and total(c, "n_bytes") <= most]
    best = min(total(c, "cost") for c in fitting)
    # The search goes step by step: it may miss the best by what one step costs.
    assert best <= total(chosen, "cost") <= best + 8.0


def test_all_is_best_where_there_is_room_and_least_where_there_is_none():
    assert set(fit_bytes(OPTIONS, 1690).formats.values()) == {"Q8_0"}
    assert fit_bytes(OPTIONS, 450).formats == {"a": "Q2_K", "b": "Q2_K", "c": "Q4_K"}
    with pytest.raises(InvalidParameterError, match=r"found 449 bytes .need 450 at least."):
        fit_bytes(OPTIONS, 449)
    with pytest.raises(InvalidParameterError, match=r"found 1449 bytes .need 1450 at least."):
        fit_bytes(OPTIONS, 1449, other_bytes=1000)


@pytest.mark.parametrize("most", [0.0, 1.0, 2.9, 3.0, 6.0, 11.5, 30.0])
def test_costs_no_more_than_allowed_and_takes_near_the_least_bytes(most):
    found = fit_cost(OPTIONS, most)
    assert total(found.formats, "cost") == found.cost <= most
    every = [dict(zip(OPTIONS, c, strict=True)) for c in itertools.product(*_names())]
    least = min(total(c, "n_bytes") for c in every if total(c, "cost") <= most)
    assert least <= found.n_bytes <= least + 400


def _names():
    return [[option.format for option in of] for of in OPTIONS.values()]


def test_where_nothing_costs_so_little_the_best_formats_are_taken():
    dear = {"a": [Option("Q8_0", 800, 1.0), Option("Q4_K", 400, 2.0)]}
    assert fit_cost(dear, 0.5).formats == {"a": "Q8_0"}


def test_formats_that_another_beats_are_no_options():
    best, dear, equal, small = (
        Option("Q8_0", 800, 0.0),
        Option("Q5_K", 500, 6.0),
        Option("Q4_K", 400, 5.0),
        Option("Q2_K", 200, 6.0),
    )
    assert _hull([best, dear, equal, small]) == [best, small]
    assert _hull([best, Option("Q4_0", 400, 2.0), Option("IQ4_NL", 400, 1.0)])[1].format == "IQ4_NL"
    assert _hull([best, Option("IQ4_NL", 400, 1.0), Option("Q4_0", 400, 2.0)])[1].format == "IQ4_NL"


class Rows:
    """A source that holds one matrix."""

    def __init__(self, values):
        self.values = values

    def read(self, tensor, rows):
        values = self.values.reshape(-1, tensor.n_columns)[rows]
        return Tensor("w", values.shape, tensor.format, values.reshape(-1).view(np.uint8))


def options_of(values, importance=None):
    tensor = Tensor("w", values.shape, FORMATS["F32"], values.reshape(-1).view(np.uint8))
    return measured(Rows(values), tensor, importance, encoder(LADDER, ()), alignment=32)


def test_costs_are_the_share_of_noise():
    values = np.random.default_rng(1).standard_normal((40, 512)).astype(np.float32)
    options = options_of(values)
    assert [o.format for o in options][:2] == ["Q8_0", "Q6_K"]
    assert options[-1].format == "Q2_K"
    costs = [o.cost for o in options]
    assert costs == sorted(costs)
    assert 1e-6 < costs[0] < 1e-4
    assert 0.05 < costs[-1] < 0.5
    assert options[0].n_bytes == 40 * 512 // 32 * 34
    assert options_of(np.zeros((40, 512), np.float32))[-1].cost == 0.0
    assert [o.cost for o in weighed(options, 3.0)] == [3.0 * cost for cost in costs]


def test_importance_of_each_expert_counts_for_its_rows():
    values = np.random.default_rng(1).standard_normal((3, 40, 256)).astype(np.float32)
    importance = np.ones((3, 256), np.float32)
    importance[1, :8] = 1e6
    plain, weighted = options_of(values), options_of(values, importance)
    assert [o.n_bytes for o in weighted][-1] == [o.n_bytes for o in plain][-1]
    assert weighted[-1].cost < plain[-1].cost


@pytest.fixture
def source(tmp_path):
    metadata, arrays = tiny.llama(n_embd=256, n_ff=512, dim=64, n_heads=4, bias=False)
    return write_gguf(tmp_path / "in.gguf", metadata, arrays)


@pytest.mark.parametrize("share", [0.12, 0.16, 0.2, 0.26])
def test_the_file_takes_at_most_what_is_allowed(source, tmp_path, share):
    allowed = int(source.stat().st_size * share)
    report = quantize(source, tmp_path / "out.gguf", max_bytes=allowed)
    size = (tmp_path / "out.gguf").stat().st_size
    assert size == report.n_bytes <= allowed
    assert size > 0.9 * allowed
    assert report.recipe == f"{allowed} bytes"


def test_what_the_caller_fixed_stays(source, tmp_path):
    allowed = int(source.stat().st_size * 0.2)
    quantize(
        source, tmp_path / "out.gguf", max_bytes=allowed, tensor_types={"attn_q": "Q8_0"},
        embedding_type="Q2_K",
    )  # fmt: skip
    with open_gguf(tmp_path / "out.gguf") as file:
        formats = {name: t.format.name for name, t in file.tensors.items()}
        assert file.n_bytes <= allowed
        assert file.metadata["general.file_type"] in (7, 10, 12, 15, 17, 18, 30)
    assert formats["blk.0.attn_q.weight"] == formats["blk.1.attn_q.weight"] == "Q8_0"
    assert formats["token_embd.weight"] == "Q2_K"


def test_importance_is_used(source, tmp_path):
    sums = {"blk.0.ffn_up.weight": Sums(np.ones((1, 256)), np.ones(1))}
    write_imatrix(tmp_path / "im.gguf", Imatrix(sums))
    allowed = int(source.stat().st_size * 0.2)
    report = quantize(
        source, tmp_path / "out.gguf", max_bytes=allowed, imatrix=tmp_path / "im.gguf"
    )
    assert [t.name for t in report.tensors if t.used_importance] == ["blk.0.ffn_up.weight"]
    assert report.n_bytes <= allowed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "found none"),
        ({"recipe": "Q4_0", "max_bytes": 1 << 20}, "found recipe and max_bytes"),
        ({"max_bytes": 1 << 20, "split_max_bytes": 1 << 20}, "a split set: found both"),
        ({"max_bytes": 1 << 20, "pure": True}, "max_bytes and pure: found both"),
        ({"max_bytes": 5000}, r"max_bytes: found 5000 bytes \(need \d+ at least\)"),
    ],
)
def test_what_cannot_be_is_refused(source, tmp_path, options, message):
    with pytest.raises(InvalidParameterError, match=message):
        quantize(source, tmp_path / "out.gguf", **options)
    assert not (tmp_path / "out.gguf").exists()
