"""Each encoder's tiny random model, made by transformers and converted, gives what it gave there.

The reference backend gives it to 1e-4 of the largest magnitude; the native one to 1e-5, and to 2e-3
with weights and activations of F16, whose rounding is 5e-4. Its bits do not depend on company and
threads.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels.backend import Batch, Executable
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.program.program import Pooling
from tests.arch.converting import converted
from tests.arch.readers import N_LONG, N_SHORT, READERS, Reader
from tests.kernels.kl import limits_for

Floats = npt.NDArray[np.float32]
LAST = (N_LONG - 1, N_LONG + N_SHORT - 1)

pytestmark = [
    pytest.mark.timeout(600),  # the first test waits for all models to be made
    pytest.mark.skipif(
        not all(find_spec(name) for name in ("torch", "transformers", "gguf")),
        reason="needs torch, transformers and gguf",
    ),
]


@dataclass(frozen=True)
class Model:
    """A model that transformers made, two sequences, and what it gives for each."""

    row: Reader
    folder: Path
    tokens: npt.NDArray[np.int32]
    rows: Floats | None  # (N_LONG + N_SHORT, n_embd), of models that give no scores
    results: Floats  # (2, n_out)


@pytest.fixture(scope="module", params=READERS)
def model(request: pytest.FixtureRequest, readers: Path) -> Model:
    """One of the models."""
    arrays = np.load(readers / f"{request.param}.npz")
    tokens = arrays["tokens"].astype(np.int32)
    row, folder = READERS[request.param], readers / request.param
    return Model(row, folder, tokens, arrays.get("rows"), arrays["results"])


def step(tokens: npt.NDArray[np.int32], *lengths: int, wanted: npt.ArrayLike) -> Batch:
    """Return a step of whole sequences."""
    n_pages = [-(-n // 64) for n in lengths]
    tables = np.zeros((len(lengths), max(n_pages)), np.int32)
    for i, n in enumerate(n_pages):
        tables[i, :n] = np.arange(n) + sum(n_pages[:i])
    return Batch(
        tokens=tokens,
        positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        sequences=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        page_tables=tables,
        wanted=np.asarray(wanted, np.int32),
    )


def both(model: Model, wanted: npt.ArrayLike = LAST) -> Batch:
    """Return a step of both sequences."""
    return step(model.tokens, N_LONG, N_SHORT, wanted=wanted)


def off(found: Floats, truth: Floats) -> float:
    """Return the largest error as a share of the largest magnitude."""
    assert found.shape == truth.shape
    return float(np.abs(found - truth).max() / np.abs(truth).max())


def on_native(file: GgufFile, *, n_threads: int = 1, pooling: Pooling | None = None) -> Executable:
    """Compile for both sequences."""
    pytest.importorskip("edgeinfer.kernels.native._native")
    from edgeinfer.kernels.native.backend import BACKEND

    program = build_program(file.metadata, file.tensors, n_ctx=256, pooling=pooling)
    limits = limits_for(256, kv_type="f32", activations="fine", n_threads=n_threads)
    return BACKEND.compile(program, file.tensors, limits)


@pytest.fixture(scope="module")
def native(model: Model) -> Iterator[Executable]:
    """The model with weights of F16 on the native backend."""
    with open_gguf(converted(model.folder, "f16")) as file:
        yield on_native(file)


def test_reference_gives_what_transformers_gives(model: Model) -> None:
    with open_gguf(converted(model.folder, "f32")) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        found = REFERENCE.compile(program, file.tensors, limits_for(256)).run(both(model))
        assert off(found, model.results) <= 1e-4
        assert program.pooling == (model.row.pooling or "rank")
        if model.rows is None:
            return
        program = build_program(file.metadata, file.tensors, n_ctx=256, pooling="none")
        executable = REFERENCE.compile(program, file.tensors, limits_for(256))
        rows = executable.run(both(model, np.arange(N_LONG + N_SHORT)))
        assert off(rows, model.rows) <= 1e-4


@pytest.mark.parametrize(("outtype", "most"), [("f32", 1e-5), ("f16", 2e-3)])
def test_native_is_close_to_transformers(model: Model, outtype: str, most: float) -> None:
    with open_gguf(converted(model.folder, outtype)) as file:
        executable = on_native(file)
        assert off(executable.run(both(model)), model.results) <= most


def test_native_gives_the_rows_of_tokens(model: Model) -> None:
    if model.rows is None:
        pytest.skip("gives scores")
    with open_gguf(converted(model.folder, "f32")) as file:
        executable = on_native(file, pooling="none")
        found = executable.run(both(model, np.arange(N_LONG + N_SHORT)))
        assert off(found, model.rows) <= 1e-5


def test_native_batched_equals_alone(model: Model, native: Executable) -> None:
    together = native.run(both(model)).copy()
    for i, part in enumerate((model.tokens[:N_LONG], model.tokens[N_LONG:])):
        alone = native.run(step(part, len(part), wanted=[len(part) - 1]))
        assert (alone == together[i]).all()


def test_native_bits_do_not_depend_on_threads(model: Model, native: Executable) -> None:
    with open_gguf(converted(model.folder, "f16")) as file:
        threaded = on_native(file, n_threads=2)
        assert (threaded.run(both(model)) == native.run(both(model))).all()


@pytest.fixture(scope="module")
def peer_folder(readers: Path) -> Path:
    """The models, with what llama.cpp gives for the files of some."""
    if find_spec("llama_cpp") is None:
        pytest.skip("needs llama-cpp-python")
    names = [name for name, row in READERS.items() if row.peer is not None]
    for name in names:
        converted(readers / name, "f32")
    script = Path(__file__).with_name("llama_cpp_results.py")
    done = subprocess.run(
        [sys.executable, script, readers, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return readers


def test_llama_cpp_agrees(model: Model, peer_folder: Path) -> None:
    if model.row.peer is None:
        pytest.skip("llama.cpp computes it otherwise")
    found = np.load(peer_folder / f"{model.folder.name}.npy")
    assert off(found, model.results) <= model.row.peer
