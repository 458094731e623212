"""The numba backend computes the bits of the native one, on tiny models and on a real one."""

import logging
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import (
    BackendError,
    CancelledError,
    ModelClosedError,
    UnsupportedModelError,
)
from edgeinfer.kernels.backend import Batch, Cancel, Executable, Limits, choose
from edgeinfer.kernels.jit.backend import BACKEND
from edgeinfer.kernels.native.backend import BACKEND as NATIVE
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.program import ops
from edgeinfer.program.builder import Builder
from edgeinfer.quant.formats import FORMATS
from tests.arch import tiny
from tests.arch.test_gemma4 import gemma4
from tests.kernels import test_attention as attention
from tests.kernels import test_native_experts as experts
from tests.kernels import test_native_moe as moe
from tests.kernels.kl import limits_for, one_sequence, run_tokens
from tests.kernels.random_weights import all_matrices
from tests.kernels.test_native_shapes import BLOCKS, N_KV, NAMES, SHAPES

pytest.importorskip("numba")
pytest.importorskip("edgeinfer.kernels.native._native")

from edgeinfer.kernels.jit.formats import PACKINGS

pytestmark = pytest.mark.timeout(600)  # the first to run compiles the kernels

LIMITS = Limits(n_ctx=512, n_pages=12, n_batch=512, n_threads=2)
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 330)]
WANTED = [0, 70, 149, 255, 256, 329]


def bits(executable: Executable, **how: Any) -> np.ndarray:
    return run_tokens(executable, TOKENS, WANTED, **how).view(np.uint32).copy()


def need_equal(
    path: Path, metadata: dict[str, Any], arrays: dict[str, Any], limits: Limits = LIMITS
) -> None:
    with tiny.open_model(path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=512)
        made = [b.compile(program, file.tensors, limits) for b in (BACKEND, NATIVE)]
        found, expected = (bits(executable) for executable in made)
        for executable in made:
            executable.close()
    assert (found == expected).all()


def is_hybrid(path: Path, metadata: dict[str, Any], arrays: dict[str, Any]) -> bool:
    with tiny.open_model(path, metadata, arrays) as file:
        return build_program(file.metadata, file.tensors, n_ctx=512).snapshot_bytes > 0


def test_every_native_format_is_there() -> None:
    assert sorted(PACKINGS) == sorted(NAMES)
    assert set(PACKINGS) <= set(FORMATS)


@pytest.mark.parametrize("shape", SHAPES)
def test_odd_shapes_equal_native(tmp_path: Path, shape: str) -> None:
    arch, options = SHAPES[shape]
    metadata, arrays = getattr(tiny, arch)(**options)
    if is_hybrid(tmp_path, metadata, arrays):
        with pytest.raises(UnsupportedModelError, match=r"jit backend: op '.*' is not implemented"):
            need_equal(tmp_path, metadata, arrays)
    else:
        need_equal(tmp_path, metadata, arrays)


def test_layers_that_see_wanted_rows_alone_equal_native(tmp_path: Path) -> None:
    need_equal(tmp_path, *gemma4())


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_any_format_equal_native(tmp_path: Path, name: str) -> None:
    metadata, arrays = tiny.llama(**BLOCKS, n_kv=4)
    need_equal(tmp_path, metadata, all_matrices(arrays, [name]))


@pytest.mark.parametrize("activations", ["auto", "fine"])
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_formats_and_activations_may_differ_within_a_model(
    tmp_path: Path, arch: str, activations: str
) -> None:
    metadata, arrays = getattr(tiny, arch)(**BLOCKS, n_kv=N_KV[arch])
    limits = replace(LIMITS, activations=activations)
    need_equal(tmp_path, metadata, all_matrices(arrays, list(NAMES)), limits)


@pytest.mark.parametrize("fn", ["gelu_erf", "relu", "relu2", "sigmoid", "tanh", "softplus"])
def test_every_activation_equals_native(tmp_path: Path, fn: str) -> None:
    """Those no architecture here uses, put where the model has its own."""
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=512)
        changed = (replace(op, fn=fn) if isinstance(op, ops.Gated) else op for op in program.ops)
        program = replace(program, ops=tuple(changed))
        made = [b.compile(program, file.tensors, LIMITS) for b in (BACKEND, NATIVE)]
        found, expected = (bits(executable) for executable in made)
        for executable in made:
            executable.close()
    assert (found == expected).all()


def test_rows_that_grow_with_their_position_equal_native() -> None:
    table = np.random.default_rng(2).standard_normal((attention.N_IDS, 40)).astype(np.float32)
    tensors = {"x.weight": attention.tensor("x.weight", table)}
    b = Builder("test", tensors)
    x = b.scale(b.embed("x", attention.N_IDS, 40), by=0.3, temp=(0.2, 50))
    b.output("logits", b.rows(x))
    program = b.finish(attention.Sizes(attention.N_IDS))
    made = [backend.compile(program, tensors, LIMITS) for backend in (BACKEND, NATIVE)]
    found, expected = (attention.run(executable, attention.ids(300)) for executable in made)
    assert attention.same_bits(found, expected)


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_a_real_model_equals_native_in_any_chunks(smollm2_path: Path, kv_type: str) -> None:
    found = []
    with open_gguf(smollm2_path) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=512)
        tokens = [(7 * i + i // 3) % program.n_vocab for i in range(90)]
        for backend, n_threads, chunk in ((NATIVE, 2, 512), (BACKEND, 2, 64), (BACKEND, 1, 89)):
            limits = limits_for(512, n_threads=n_threads, kv_type=kv_type)
            made = backend.compile(program, file.tensors, limits)
            logits = run_tokens(made, tokens, [0, 63, 88, 89], chunk)
            found.append(logits.view(np.uint32).copy())
            made.close()
    assert (found[1] == found[0]).all()
    assert (found[2] == found[0]).all()


@pytest.mark.parametrize(
    ("asked", "kv_type"),
    [*((name, "f16") for name in {**attention.CAUSAL, **attention.AHEAD}), ("odd", "f32")],
)
def test_attention_equals_native(asked: str, kv_type: str) -> None:
    tokens, found = attention.ids(560), []
    for backend in (BACKEND, NATIVE):
        wanted = {**attention.CAUSAL, **attention.AHEAD}[asked]
        executable = attention.compiled(wanted, backend, kv_type=kv_type)
        found.append(attention.run(executable, tokens))
        executable.close()
    assert attention.same_bits(*found)


@pytest.mark.parametrize("model", moe.MODELS)
def test_a_model_of_experts_equals_native(tmp_path: Path, model: str) -> None:
    with moe.compiled(tmp_path, model) as make:
        executable, native = make(BACKEND), make()
        expected = moe.bits(run_tokens(native, moe.TOKENS, moe.WANTED))
        for chunk in (512, 7):
            found = run_tokens(executable, moe.TOKENS, moe.WANTED, chunk)
            assert (moe.bits(found) == expected).all()
        executable.close()
        native.close()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("shape", experts.SHAPES)
def test_a_block_of_experts_equals_native(shape: str, k: int) -> None:
    wishes = [[(t * t + j * (1 + t % 2)) % 9 for j in range(k)] for t in experts.ALL]
    d = experts.Draft(experts.rows_for(wishes))
    made = d.finish(experts.mlp(d, k, **experts.SHAPES[shape]))
    found, expected = (experts.run(made, experts.ALL, b) for b in (BACKEND, NATIVE))
    assert (experts.bits(found) == experts.bits(expected)).all()


@pytest.mark.parametrize("case", experts.CHOICES)
def test_choices_of_experts_equal_native(case: str) -> None:
    n_experts, k, how = experts.CHOICES[case]
    shape = (experts.N_ROWS, n_experts)
    logits = (3 * np.random.default_rng(n_experts).standard_normal(shape)).astype(np.float32)
    found, expected = (experts.chosen(logits, k, b, **how) for b in (BACKEND, NATIVE))
    assert (found[0] == expected[0]).all()
    assert (experts.bits(found[1]) == experts.bits(expected[1])).all()


# -- one model, many ways ------------------------------------------------------------------------


@pytest.fixture
def executable(tmp_path: Path) -> Iterator[Executable]:
    with tiny.open_model(tmp_path, *tiny.gemma3()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=512)
        made = BACKEND.compile(program, file.tensors, LIMITS)
        yield made
        made.close()


def test_sequences_keep_apart_and_pages_may_lie_anywhere(executable: Executable) -> None:
    alone = bits(executable)
    first, second = TOKENS[:150], TOKENS[:70]
    pages = np.array([[9, 2, 7], [0, 11, -1]], np.int32)
    together = Batch(
        tokens=np.array(first + second, np.int32),
        positions=np.array([*range(150), *range(70)], np.int32),
        sequences=np.repeat(np.arange(2, dtype=np.int32), [150, 70]),
        page_tables=pages,
        wanted=np.array([0, 70, 149, 150], np.int32),
    )
    found = executable.run(together).view(np.uint32)
    assert (found == alone[[0, 1, 2, 0]]).all()


def test_cancel_before_a_step_stops_it(executable: Executable) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError):
        executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel)
    cancel.clear()
    assert executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel).shape == (1, tiny.N_VOCAB)


def test_a_copied_page_serves_like_the_one_it_was_copied_from(executable: Executable) -> None:
    prompt, rest = TOKENS[:128], one_sequence(TOKENS[128:140], 128, [11])
    executable.run(one_sequence(prompt, 0, []))
    expected = executable.run(rest).copy()
    for page in (0, 1):
        executable.copy_page(page, page + 4)
    moved = replace(rest, page_tables=np.array([[4, 5, 6]], np.int32))
    assert (executable.run(moved) == expected).all()


def test_nothing_wanted_gives_no_rows(executable: Executable) -> None:
    assert executable.run(one_sequence(TOKENS[:5], 0, [])).shape == (0, tiny.N_VOCAB)


def test_close_is_idempotent_and_final(executable: Executable) -> None:
    executable.close()
    executable.close()
    with pytest.raises(ModelClosedError, match="after close"):
        executable.run(one_sequence([1], 0, [0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused_and_does_not_hang(executable: Executable) -> None:
    before = bits(executable)
    from_child, to_parent = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the point
        child = os.fork()
    if child == 0:
        try:
            executable.run(one_sequence(TOKENS[:3], 0, [2]))
            answer = b"ran"
        except BackendError as error:
            answer = str(error).encode()
        executable.close()
        os.write(to_parent, answer)
        os._exit(0)
    ready, _, _ = select.select([from_child], [], [], 30)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert ready and b"forked" in os.read(from_child, 1000)
    os.close(from_child)
    os.close(to_parent)
    assert (bits(executable) == before).all()


# -- what it refuses, and when it is chosen ------------------------------------------------------


def test_a_missing_op_is_named() -> None:
    d = experts.Draft(experts.rows_for(experts.WISHES["mixed"][1]))
    out = d.b.value(2 * d.x.width, d.x.rows)
    d.b._emit(ops.Concat((d.x, d.x), out, (False, False)))
    with pytest.raises(UnsupportedModelError, match="jit backend: op 'concat'"):
        BACKEND.compile(*d.finish(out), LIMITS)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_missing_kv_type_is_named(tmp_path: Path, kv_type: str) -> None:
    limits = Limits(n_ctx=256, n_pages=8, kv_type=kv_type)
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        with pytest.raises(
            UnsupportedModelError, match=f"kv_type: found '{kv_type}' .need one of f32, f16"
        ):
            BACKEND.compile(program, file.tensors, limits)


def test_it_is_chosen_where_nothing_was_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("edgeinfer.kernels.native.isa.why_unavailable", lambda: "no compiler")
    with caplog.at_level(logging.WARNING):
        assert choose("auto").name == "jit"
    assert "slower backend 'jit': native: no compiler" in caplog.text


def test_without_numba_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeinfer.kernels.jit.backend.find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"pip install 'edgeinfer\[numba\]'"):
        choose("jit")
    monkeypatch.setattr("edgeinfer.kernels.native.isa.why_unavailable", lambda: "no compiler")
    assert choose("auto").name == "reference"


def test_a_numba_that_cannot_be_imported_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "edgeinfer.kernels.jit.executable", None)
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        with pytest.raises(BackendError, match="cannot be imported"):
            BACKEND.compile(program, file.tensors, LIMITS)


def test_numba_is_not_imported_before_it_is_used() -> None:
    code = (
        "import sys, edgeinfer.kernels.backend as b; b.choose('jit'); print('numba' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
