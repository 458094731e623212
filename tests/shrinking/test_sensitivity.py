"""What is tried together, with which formats, and that it is what a file would hold."""

import itertools

import numpy as np
import pytest

from edgeinfer import quantize
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.recipe import RECIPES
from edgeinfer.quantizing.choices import Choices
from edgeinfer.quantizing.copying import Splitting
from edgeinfer.quantizing.job import open_job
from edgeinfer.quantizing.search import Option
from edgeinfer.shrinking.meter import Meter
from edgeinfer.shrinking.sensitivity import PROBE_NOISE, groups_of, probe_file, probe_of
from tests.shrinking.spoken import TEXT, write_spoken

pytest.importorskip("edgeinfer.kernels.native._native")


def test_matrices_of_a_role_are_tried_by_parts_of_the_layers():
    names = [f"blk.{i}.{name}.weight" for i in range(8) for name in ("attn_q", "ffn_up_exps")]
    groups = groups_of(["token_embd.weight", *names, "output.weight"])
    assert sorted(map(len, groups)) == [1, 1, 2, 2, 2, 2, 4, 4]
    assert [f"blk.{i}.attn_q.weight" for i in (2, 3, 4, 5)] in groups
    assert ["output.weight"] in groups
    assert sorted(itertools.chain(*groups)) == sorted(
        ["token_embd.weight", *names, "output.weight"]
    )


def test_formats_are_tried_whose_noise_is_seen():
    fine, seen, noisy = (Option("Q4_K", 1, PROBE_NOISE * x) for x in (0.1, 1, 9))
    assert probe_of([fine, seen, noisy]) is seen
    assert probe_of([fine]) is fine


def test_what_is_tried_is_what_a_file_would_hold(tmp_path):
    source = write_spoken(tmp_path / "in.gguf", n_experts=3)
    quantize(source, tmp_path / "out.gguf", "Q4_1")
    options = {"splitting": Splitting(), "imatrix": None, "n_threads": 2}
    choices = Choices(recipe=RECIPES["Q8_0"])
    formats = {"blk.0.ffn_up_exps.weight": "Q4_1", "blk.1.attn_q.weight": "Q4_1"}
    with (
        open_job(source, tmp_path / "x.gguf", choices, **options) as job,
        open_gguf(tmp_path / "out.gguf") as file,
        probe_file(job, formats, tmp_path / "probe") as probe,
    ):
        assert probe.tensors.keys() == formats.keys()
        for name, tensor in probe.tensors.items():
            assert tensor.shape == file.tensors[name].shape
            assert np.array_equal(tensor.data, file.tensors[name].data)
    assert not (tmp_path / "probe").exists()


@pytest.mark.parametrize("tied", [False, True])
def test_a_probe_loses_what_a_file_with_it_would(tmp_path, tied):
    """Tied embeddings are laid out and looked up as well."""
    source = write_spoken(tmp_path / "in.gguf", tied=tied)
    only = {"tensor_types": {"token_embd": "Q4_1", ".*": "F32"}}
    quantize(source, tmp_path / "out.gguf", "Q8_0", **only)
    options = {"splitting": Splitting(), "imatrix": None, "n_threads": 2}
    arguments = {"chunks": None, "n_threads": 2, "progress": lambda *now: None}
    choices = Choices(recipe=RECIPES["Q8_0"])
    with (
        open_job(source, tmp_path / "x.gguf", choices, **options) as job,
        Meter(source, TEXT, tmp_path / "kept", **arguments) as meter,
        probe_file(job, {"token_embd.weight": "Q4_1"}, tmp_path / "probe") as probe,
    ):
        expected = meter.divergence_of(tmp_path / "out.gguf", lambda *now: None)
        assert meter.divergence_with(probe.tensors) == expected
        assert expected.kld.value > 0
