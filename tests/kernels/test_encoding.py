"""What encoders need of a backend: learned positions, whole sequences, one row for each of them."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Batch, Limits
from edgeinfer.kernels.jit.backend import BACKEND as JIT
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND as NATIVE
from edgeinfer.kernels.native.lower import lower
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops_rowwise import PoolKind
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.encode import encode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.arch import tiny
from tests.kernels.kl import one_sequence

pytest.importorskip("edgeinfer.kernels.native._native")

N_IDS, N_CTX, WIDTH, N_FF, HEADS = 50, 64, 64, 96, 4
LIMITS = Limits(n_ctx=N_CTX, n_pages=4, n_batch=128, n_threads=2)
needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
BACKENDS = [NATIVE, pytest.param(JIT, marks=needs_numba), REFERENCE]
KINDS: tuple[PoolKind, ...] = ("mean", "cls", "last")
Floats = npt.NDArray[np.float32]
Files: TypeAlias = dict[str, GgufFile]


class Sizes(NamedTuple):
    """What a program says of itself."""

    n_ctx: int = N_CTX
    n_vocab: int = N_IDS
    n_embd: int = WIDTH
    n_layers: int = 2
    n_ctx_train: int = N_CTX


def same_bits(a: Floats, b: Floats) -> bool:
    return bool((a.view(np.uint32) == b.view(np.uint32)).all())


# -- tables --------------------------------------------------------------------------------------


def table(n_rows: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((n_rows, WIDTH)).astype(np.float32)


TABLES = {
    "token_embd.weight": table(N_IDS, 1),
    "position_embd.weight": table(N_CTX, 2),
    "token_types.weight": table(3, 3),
}


def added(b: Builder) -> Value:
    """Add the embeddings of token, position and type 2."""
    x = b.embed("token_embd", N_IDS, WIDTH)
    x = b.add(x, b.embed("position_embd", N_CTX, WIDTH, ids="pos", scale=3.0))
    return b.add(x, b.embed("token_types", 3, WIDTH, ids="row", row=2))


def embedded(n_ctx: int = N_CTX) -> tuple[Program, dict[str, Tensor]]:
    """Return the program of these embeddings and its tensors."""
    tensors = {
        name: Tensor(name, array.shape, FORMATS["F32"], array.reshape(-1).view(np.uint8))
        for name, array in TABLES.items()
    }
    b = Builder("test", tensors)
    b.output("embedding", b.rows(added(b)), pooling="none")
    return b.finish(Sizes(n_ctx=n_ctx)), tensors


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_and_types_are_looked_up(backend: Any) -> None:
    executable = backend.compile(*embedded(), LIMITS)
    ids = [7, 0, 49]
    found = executable.run(one_sequence(ids, 61, [0, 1, 2])).copy()
    executable.close()
    tokens, positions, types = TABLES.values()
    assert (found == tokens[ids] + positions[61:64] * np.float32(3) + types[2]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_text_of_a_pair_begins_behind_the_first_separator(backend: Any) -> None:
    _, tensors = embedded()
    b = Builder("test", tensors)
    x = b.embed("token_types", 3, WIDTH, ids="segments", separator=9)
    b.output("embedding", b.rows(x), pooling="none")
    executable = backend.compile(b.finish(Sizes()), tensors, LIMITS)
    batch = Batch(
        tokens=np.array([4, 9, 5, 9, 6, 5, 5, 9, 9], np.int32),
        positions=np.array([0, 1, 2, 3, 4, 0, 1, 0, 1], np.int32),
        sequences=np.array([0, 0, 0, 0, 0, 1, 1, 2, 2], np.int32),
        page_tables=np.array([[0], [1], [2]], np.int32),
        wanted=np.arange(9, dtype=np.int32),
    )
    found = executable.run(batch).copy()
    executable.close()
    assert (found == TABLES["token_types.weight"][[0, 0, 1, 1, 1, 0, 0, 0, 1]]).all()


def test_a_program_serves_no_position_without_a_row() -> None:
    with pytest.raises(InvalidParameterError, match=r"n_ctx: found 65 \(need at most 64\)"):
        embedded(N_CTX + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_limits_keep_to_the_positions_there_are(backend: Any) -> None:
    limits = Limits(n_ctx=N_CTX + 1, n_pages=4)
    for do in (backend.compile, backend.measure):
        with pytest.raises(InvalidParameterError, match=r"n_ctx: found 65 \(need at most 64\)"):
            do(*embedded(), limits)


# -- a whole encoder -----------------------------------------------------------------------------


def weights() -> dict[str, Floats]:
    """Return the weights of two layers and a head of three scores."""
    shapes: dict[str, tuple[int, ...]] = {"cls": (WIDTH, WIDTH), "cls.output": (3, WIDTH)}
    for il in range(2):
        shapes |= {f"blk.{il}.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{il}.ffn_up": (N_FF, WIDTH), f"blk.{il}.ffn_down": (WIDTH, N_FF)}
        shapes |= {f"blk.{il}.attn_output_norm": (WIDTH,), f"blk.{il}.layer_output_norm": (WIDTH,)}
    random = np.random.default_rng(7)
    made = dict(TABLES)
    for name, shape in shapes.items():
        noise = random.standard_normal(shape).astype(np.float32)
        by = np.float32(shape[1] ** -0.5 if len(shape) > 1 else 0.3)
        made[f"{name}.weight"] = noise * by + np.float32(len(shape) == 1)
        made[f"{name}.bias"] = 0.3 * random.standard_normal(shape[0]).astype(np.float32)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The weights with matrices of each format: mapped files, whose pages backends give back."""
    made = {}
    for name in ("F32", "F16", "Q8_0"):
        arrays: dict[str, Any] = weights()
        for key, array in arrays.items():
            if array.ndim > 1:
                arrays[key] = (name, array.shape, encode(name, array).tobytes())
        made[name] = tiny.open_model(tmp_path_factory.mktemp(name), {}, arrays)
    return made


def encoder(tensors: Mapping[str, Tensor], kind: PoolKind) -> Program:
    """Return a program of a global and a windowed layer, then shares of three scores."""
    b = Builder("test", tensors)
    x = added(b)
    for il, window in enumerate((0, 5)):
        q, k, v = (b.linear(x, f"blk.{il}.attn_{name}", WIDTH) for name in "qkv")
        dim = WIDTH // HEADS
        kv = b.kv(HEADS, dim, dim, window=window, kind="step")
        b.kv_store(k, v, kv)
        see: dict[str, Any] = {"mask": "full", "window_kind": "symmetric"}
        o = b.attention(q, kv, HEADS, scale=dim**-0.5, **see)
        o = b.add(x, b.linear(o, f"blk.{il}.attn_output", WIDTH))
        x = b.layer_norm(o, f"blk.{il}.attn_output_norm", 1e-12)
        h = b.act(b.linear(x, f"blk.{il}.ffn_up", N_FF), "gelu_erf")
        h = b.add(x, b.linear(h, f"blk.{il}.ffn_down", WIDTH))
        x = b.layer_norm(h, f"blk.{il}.layer_output_norm", 1e-12)
    x = b.l2_norm(b.pool(x, kind), 1e-6, groups=1)
    x = b.act(b.linear(x, "cls", WIDTH), "tanh")
    b.output("scores", b.softmax(b.linear(x, "cls.output", 3)), pooling="rank")
    return b.finish(Sizes())


TEXTS = [np.random.default_rng(n).integers(0, N_IDS, n).tolist() for n in (19, 61, 1, 30)]


def batch(texts: list[list[int]]) -> Batch:
    """Return a step of whole sequences, the last token of each of them wanted."""
    lengths = [len(text) for text in texts]
    return Batch(
        tokens=np.concatenate(texts).astype(np.int32),
        positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        sequences=np.repeat(np.arange(len(texts)), lengths).astype(np.int32),
        page_tables=np.arange(len(texts), dtype=np.int32)[::-1].reshape(-1, 1).copy(),
        wanted=(np.cumsum(lengths) - 1).astype(np.int32),
    )


@pytest.mark.parametrize("format_name", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("kind", KINDS)
def test_native_scores_equal_the_reference(files: Files, kind: PoolKind, format_name: str) -> None:
    limits = replace(LIMITS, activations="fine", kv_type="f32")
    tensors = files[format_name].tensors
    program = encoder(tensors, kind)
    made = [backend.compile(program, tensors, limits) for backend in (NATIVE, REFERENCE)]
    found, expected = (executable.run(batch(TEXTS)) for executable in made)
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if format_name == "F32" else 2e-5)
    assert expected.std(axis=0).min() > 1e-3  # texts differ


@pytest.mark.parametrize("kind", KINDS)
def test_company_threads_and_instruction_sets_give_the_same(files: Files, kind: PoolKind) -> None:
    tensors = files["Q8_0"].tensors
    program = encoder(tensors, kind)
    one = NATIVE.compile(program, tensors, replace(LIMITS, n_threads=1))
    alone = np.concatenate([one.run(batch([text])).copy() for text in TEXTS])
    for level in isa.levels():
        several = NATIVE.compile(program, tensors, LIMITS, isa_name=level)
        assert same_bits(several.run(batch(TEXTS)), alone)
        assert same_bits(several.run(batch(TEXTS[::-1])), alone[::-1].copy())


@needs_numba
@pytest.mark.timeout(600)  # it may have to compile the kernels
@pytest.mark.parametrize("kind", KINDS)
def test_numba_scores_equal_native(files: Files, kind: PoolKind) -> None:
    tensors = files["Q8_0"].tensors
    made = [backend.compile(encoder(tensors, kind), tensors, LIMITS) for backend in (JIT, NATIVE)]
    found, expected = (executable.run(batch(TEXTS)) for executable in made)
    assert same_bits(found, expected)


def test_convolutions_that_look_ahead_equal_the_reference(tmp_path: Path) -> None:
    """And give the same for every sequence in company, at every level, in any of its columns."""
    metadata, arrays = tiny.lfm2(
        attention__causal=False, pooling_type=1, n_embd=144, n_taps=5, bias=True
    )
    file = tiny.open_model(tmp_path, metadata, arrays)
    program = build_program(file.metadata, file.tensors, n_ctx=N_CTX)
    limits = replace(LIMITS, kv_type="f32")
    made = [backend.compile(program, file.tensors, limits) for backend in (NATIVE, REFERENCE)]
    found, expected = (executable.run(batch(TEXTS)).copy() for executable in made)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    for level in isa.levels():
        one = NATIVE.compile(program, file.tensors, limits, isa_name=level)
        alone = np.concatenate([one.run(batch([text])).copy() for text in TEXTS])
        assert same_bits(found, alone)


def test_norms_and_functions_leave_activations(files: Files) -> None:
    """But for attention's, whose heads are shorter than a block of them."""
    tensors = files["Q8_0"].tensors
    kinds = [item.kind.name for item in lower(encoder(tensors, "mean"), tensors).instructions]
    layer = "MATMUL HEADS ATTENTION NORM MATMUL LAYER_NORM MATMUL ACT MATMUL LAYER_NORM".split()
    assert kinds[5:25] == layer * 2


@pytest.mark.parametrize("backend", [NATIVE, REFERENCE])
def test_a_step_must_hold_the_longest_sequence(files: Files, backend: Any) -> None:
    tensors = files["F32"].tensors
    limits = replace(LIMITS, n_batch=N_CTX - 1)
    with pytest.raises(InvalidParameterError, match=r"n_batch: found 63 \(need at least n_ctx=64"):
        backend.compile(encoder(tensors, "mean"), tensors, limits)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_layers_keep_their_keys_and_values_in_the_same_pages(files: Files, backend: Any) -> None:
    tensors = files["F32"].tensors
    made = encoder(tensors, "mean"), tensors, replace(LIMITS, kv_type="f32")
    executable = backend.compile(*made)
    assert executable.page_bytes == 64 * 2 * WIDTH * 4  # two layers take 64 numbers twice
    assert backend.measure(*made).page_bytes == executable.page_bytes
    executable.close()
