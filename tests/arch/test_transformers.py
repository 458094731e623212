"""Each family's tiny random model, made by transformers and converted, gives transformers' logits.

The reference backend gives them to 1e-4, the native one to a KL of 1e-3, and its bits do not depend
on chunks and company.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program, supported
from edgeinfer.convert.config import Config
from edgeinfer.convert.conversion import WRITES
from edgeinfer.convert.families import FAMILIES
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.backend import Batch, Executable
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.metadata import Metadata
from tests.arch.converting import converted
from tests.arch.families import ROWS, Row
from tests.arch.readers import READERS
from tests.kernels.kl import limits_for, run_tokens

Floats = npt.NDArray[np.float32]
N_TOKENS = 200
N_LONG, N_SHORT = 130, 37

# The first test of a module waits for all models to be made: seconds, or minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)
needs_transformers = pytest.mark.skipif(
    not all(find_spec(name) for name in ("torch", "transformers", "gguf")),
    reason="needs torch, transformers and gguf",
)


@dataclass(frozen=True)
class Model:
    """A model that transformers made, and its logits, (N_TOKENS, n_vocab)."""

    row: Row
    folder: Path
    tokens: list[int]
    logits: Floats


@pytest.fixture(scope="module", params=ROWS)
def model(request: pytest.FixtureRequest, models: Path) -> Model:
    """One of the models."""
    arrays = np.load(models / f"{request.param}.npz")
    folder = models / request.param
    return Model(ROWS[request.param], folder, arrays["tokens"].tolist(), arrays["logits"])


@pytest.fixture(scope="module")
def native(model: Model) -> Iterator[Executable]:
    """The model with weights of F16 on the native backend."""
    with open_gguf(converted(model.folder, "f16")) as file:
        yield on_native(file, model.row)


def on_native(file: GgufFile, row: Row) -> Executable:
    """Compile for two sequences."""
    pytest.importorskip("edgeinfer.kernels.native._native")
    from edgeinfer.kernels.native.backend import BACKEND

    program = build_program(file.metadata, file.tensors, n_ctx=row.n_ctx)
    limits = limits_for(256, kv_type="f32", activations="fine", n_threads=1, n_snapshots=4)
    try:
        return BACKEND.compile(program, file.tensors, replace(limits, n_pages=2 * limits.n_pages))
    except UnsupportedModelError as error:
        if row.native:
            raise
        pytest.skip(str(error))


def kl(truth: Floats, found: Floats) -> float:
    """Return the mean of KL(truth || found) over rows of logits, in nats."""
    p, q = (row - np.logaddexp.reduce(row, axis=1, keepdims=True) for row in (truth, found))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def test_every_architecture_has_a_row() -> None:
    rows = (*ROWS.values(), *READERS.values())
    assert {row.arch for row in rows} == set(supported())


@needs_transformers
def test_classes_tie_their_embeddings_as_those_of_transformers_do() -> None:
    import transformers

    written = [name for name in FAMILIES if WRITES.search(name)]
    said = {
        name: getattr(transformers, name).config_class().tie_word_embeddings for name in written
    }
    ours = {name: Config(name, {}, Metadata({})).is_tied for name in written}
    assert len(written) > 35 and ours == said


@needs_transformers
def test_reference_gives_the_logits_of_transformers(model: Model) -> None:
    with open_gguf(converted(model.folder, "f32")) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=model.row.n_ctx)
        executable = REFERENCE.compile(program, file.tensors, limits_for(256))
        for chunk in (N_TOKENS, 17):
            found = run_tokens(executable, model.tokens, np.arange(N_TOKENS), chunk)
            assert np.abs(found - model.logits).max() <= 1e-4 * np.abs(model.logits).max()


@needs_transformers
def test_the_least_step_of_transformers_is_not_that_of_nemotron_h(models: Path) -> None:
    """The row's steps fall below transformers' default, so its proof is one of having no limit.

    Where this fails since transformers has none either, the row needs no `time_step_min`.
    """
    import torch
    import transformers

    arrays = np.load(models / "nemotron_h.npz")
    tokens = torch.from_numpy(arrays["tokens"])[None]
    differ = {}
    for least in (ROWS["nemotron_h"].config["time_step_min"], 0.001):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            models / "nemotron_h", time_step_min=least, attn_implementation="eager"
        )
        with torch.no_grad():
            found = model.eval().float()(tokens, use_cache=False).logits[0].numpy()
        differ[least] = np.abs(found - arrays["logits"]).max() / np.abs(arrays["logits"]).max()
    assert differ[1e-30] < 1e-4 < 1e-3 < differ[0.001]


@needs_transformers
@pytest.mark.parametrize("outtype", ["f32", "f16"])
def test_native_is_close_to_transformers(model: Model, outtype: str) -> None:
    with open_gguf(converted(model.folder, outtype)) as file:
        executable = on_native(file, model.row)
        found = run_tokens(executable, model.tokens, np.arange(N_TOKENS))
    truth = model.logits.astype(np.float64)
    assert kl(truth, found.astype(np.float64)) < 1e-3


@needs_transformers
def test_native_chunked_equals_whole(model: Model, native: Executable) -> None:
    wanted = np.arange(N_TOKENS)
    whole = run_tokens(native, model.tokens, wanted)
    for chunk in (1, 17, 64):
        assert (run_tokens(native, model.tokens, wanted, chunk) == whole).all()


@needs_transformers
def test_native_batched_equals_alone(model: Model, native: Executable) -> None:
    longer, shorter = model.tokens[:N_LONG], model.tokens[-N_SHORT:]
    alone = [run_tokens(native, tokens, np.arange(len(tokens))) for tokens in (longer, shorter)]
    n = N_LONG + N_SHORT
    together = Batch(
        tokens=np.array(longer + shorter, np.int32),
        positions=np.r_[:N_LONG, :N_SHORT].astype(np.int32),
        sequences=np.repeat(np.arange(2, dtype=np.int32), (N_LONG, N_SHORT)),
        page_tables=np.array([[0, 1, 2], [3, 0, 0]], np.int32),
        wanted=np.arange(n, dtype=np.int32),
        snapshots=np.array([0, 1], np.int32),
        saved_rows=np.array([N_LONG - 1, n - 1], np.int32),
        saved_snapshots=np.array([2, 3], np.int32),
    )
    assert (native.run(together) == np.concatenate(alone)).all()


@pytest.fixture(scope="module")
def peer_folder(models: Path) -> Path:
    """The models, with the logits that llama.cpp gives for the files of some."""
    if find_spec("llama_cpp") is None:
        pytest.skip("needs llama-cpp-python")
    names = [name for name, row in ROWS.items() if row.peer]
    for name in names:
        converted(models / name, "f32")
    script = Path(__file__).with_name("llama_cpp_logits.py")
    done = subprocess.run(
        [sys.executable, script, models, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return models


@needs_transformers
def test_llama_cpp_agrees(model: Model, peer_folder: Path) -> None:
    if not model.row.peer:
        pytest.skip("llama.cpp computes it otherwise")
    found = np.load(peer_folder / f"{model.folder.name}.npy").astype(np.float64)
    assert kl(model.logits.astype(np.float64), found) < 1e-3
