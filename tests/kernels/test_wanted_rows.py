"""Layers behind the last that keeps something run for the wanted rows alone, to the same bits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels.backend import Batch, Executable, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND as NATIVE
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program.program import Program
from edgeinfer.program.values import Rows
from edgeinfer.quant.tensor import Tensor
from tests.arch import tiny
from tests.arch.test_gemma4 import gemma4
from tests.kernels.kl import run_tokens

pytest.importorskip("edgeinfer.kernels.native._native")

N = 300  # tokens: beyond a chunk of attention, which is 256 positions
TOKENS = [int(t) for t in np.random.default_rng(6).integers(0, tiny.N_VOCAB, N)]
SOME = [0, 1, 2, 40, 41, 90, 255, 256, 257, 298]
LIMITS = Limits(n_ctx=320, n_pages=8, n_batch=N, n_threads=2)

Model = tuple[Program, dict[str, Tensor]]
Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Layers of both kinds, the last three of which keep nothing."""
    metadata, arrays = gemma4("wgwwgwg", n_shared=3)
    with tiny.open_model(tmp_path_factory.mktemp("gemma4"), metadata, arrays) as file:
        yield build_program(file.metadata, file.tensors, n_ctx=320), file.tensors


@pytest.fixture(scope="module")
def native(model: Model) -> Executable:
    return NATIVE.compile(*model, LIMITS)


@pytest.fixture(scope="module")
def all_rows(native: Executable) -> Floats:
    return run_tokens(native, TOKENS, range(N)).copy()


def test_few_ops_see_all_rows_behind_the_last_layer_that_keeps_something(model: Model) -> None:
    names = [
        ref.name
        for op in model[0].ops
        for ref in op.weights()
        if op.writes() and op.writes()[0].rows is Rows.WANTED
    ]
    assert {name.split(".")[1] for name in names if name.startswith("blk.")} == set("3456")


@pytest.mark.parametrize("wanted", [SOME, [N - 1], [5], list(range(100, 200))])
@pytest.mark.parametrize("chunk", [None, 7, 64])
def test_rows_are_the_same_whatever_others_are_wanted(
    native: Executable, all_rows: Floats, wanted: list[int], chunk: Any
) -> None:
    found = run_tokens(native, TOKENS, wanted, *([] if chunk is None else [chunk]))
    assert (found == all_rows[wanted]).all()


def test_every_isa_and_number_of_threads_gives_the_same(model: Model, all_rows: Floats) -> None:
    for level in isa.levels():
        for n_threads in (1, 3):
            limits = replace(LIMITS, n_threads=n_threads)
            executable = NATIVE.compile(*model, limits, isa_name=level)
            assert (run_tokens(executable, TOKENS, SOME) == all_rows[SOME]).all()


def test_rows_of_several_sequences(native: Executable) -> None:
    """Of the second none is wanted, of the third the last and one before."""
    lengths, wanted = (70, 30, 50), [3, 4, 69, 120, 149]
    tokens = [TOKENS[start : start + n] for start, n in zip((0, 70, 100), lengths, strict=True)]
    alone = [run_tokens(native, part, range(len(part))).copy() for part in tokens]
    together = Batch(
        tokens=np.concatenate([np.array(part, np.int32) for part in tokens]),
        positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        sequences=np.repeat(np.arange(3, dtype=np.int32), lengths),
        page_tables=np.array([[0, 1], [2, 0], [3, 0]], np.int32),
        wanted=np.array(wanted, np.int32),
    )
    assert (native.run(together) == np.concatenate(alone)[wanted]).all()


def test_the_reference_says_so_too(model: Model, all_rows: Floats) -> None:
    found = run_tokens(REFERENCE.compile(*model, LIMITS), TOKENS, SOME, 64)
    np.testing.assert_allclose(found, all_rows[SOME], atol=2e-2 * np.abs(all_rows).max())


def test_embeddings_for_each_layer_are_looked_up_where_they_are(model: Model) -> None:
    program, tensors = model
    found = NATIVE.measure(program, tensors, LIMITS)
    tables = ("token_embd.weight", "per_layer_token_embd.weight")
    assert found.table_bytes == sum(tensors[name].n_bytes for name in tables)
    kept = sum(t.n_bytes for name, t in tensors.items() if name != "per_layer_token_embd.weight")
    assert found.weights_bytes < 1.1 * kept
