"""The native backend against the reference on tiny models of odd shapes and every weight format."""

import os
import select
import signal
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
    InvalidParameterError,
    ModelClosedError,
)
from edgeinfer.kernels import precision
from edgeinfer.kernels.backend import MOST_THREADS, Cancel, Executable, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.quant.formats import FORMATS
from tests.arch import tiny
from tests.arch.next_tiny import qwen3next
from tests.kernels.block_scales import INTEGER_FORMATS
from tests.kernels.kl import one_sequence, run_tokens
from tests.kernels.law import FLOAT_FORMATS
from tests.kernels.random_weights import all_matrices

native = pytest.importorskip("edgeinfer.kernels.native._native")

NAMES = (*FLOAT_FORMATS, *INTEGER_FORMATS)
LIMITS = Limits(n_ctx=256, n_pages=8, n_batch=256, n_threads=2, activations="fine")
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 150)]
WANTED = [0, 70, 149]
# Widths that every block length divides, heads shorter than a block; in gemma3 those of one KV head
# are shorter too, so attention cannot leave its result quantized.
BLOCKS = {"n_embd": 256, "n_heads": 16, "dim": 16, "n_ff": 512}
N_KV = {"llama": 4, "gemma3": 16}
# Of the length of a row of logits: keys and values lose to float16, activations to 15 bits or,
# coarse, to 8.
FINE, COARSE = 2e-3, 0.04


@pytest.fixture
def activations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose the activations: "fine" everywhere, "coarse" everywhere, or "auto"."""
    if request.param == "auto":
        auto = precision.policy
        monkeypatch.setattr(precision, "policy", lambda program, _: auto(program, "auto"))
    else:
        is_fine = request.param == "fine"
        monkeypatch.setattr(precision, "policy", lambda *program: lambda name: is_fine)
    return str(request.param)


def error(path: Path, metadata: dict[str, Any], arrays: dict[str, Any]) -> float:
    """How far native logits lie from the reference's, relative to their length, at worst."""
    with tiny.open_model(path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = [b.compile(program, file.tensors, LIMITS) for b in (BACKEND, REFERENCE)]
        found, expected = (run_tokens(executable, TOKENS, WANTED).copy() for executable in made)
        for executable in made:
            executable.close()
    length = np.linalg.norm(expected, axis=1)
    return float((np.linalg.norm(found - expected, axis=1) / length).max())


def test_every_native_format_is_known() -> None:
    listed = native.ffi.string(native.lib.ei_format_names()).decode().split()
    assert sorted(listed) == sorted(NAMES)
    assert set(listed) <= set(FORMATS)


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "no biases": ("llama", {"bias": False}),
    "fused qkv": ("llama", {"fused": True}),
    "fused qkv, equal widths": ("llama", {"fused": True, "n_heads": 2, "n_kv": 2, "n_embd": 48}),
    "tied": ("llama", {"tied": True}),
    "plain rope": ("llama", {"rope_freqs": False}),
    "q and k of equal width": ("llama", {"n_heads": 3, "n_kv": 3}),
    "q, k and rows of equal width": ("llama", {"n_embd": 48, "n_heads": 2, "n_kv": 2}),
    "all widths equal": ("llama", {"n_embd": 48, "n_heads": 2, "n_kv": 2, "n_ff": 48}),
    "one kv head": ("llama", {"n_kv": 1}),
    "whole blocks": ("llama", {"n_heads": 4, "n_kv": 2, "dim": 32, "n_ff": 96}),
    "tiny heads": ("llama", {"n_heads": 5, "n_kv": 5, "dim": 2}),
    "large heads": ("llama", {"n_heads": 2, "n_kv": 1, "dim": 258}),
    "many heads of one kv head": ("llama", {"n_heads": 52, "n_kv": 1, "dim": 8}),
    "gemma3": ("gemma3", {}),
    "qwen35": ("qwen35", {}),
    "qwen35moe": ("qwen35moe", {}),
    "qwen35moe, whole blocks": ("qwen35moe", {"n_ff": 96, "layers": "ra"}),
    "qwen35, one key head": ("qwen35", {"k_heads": 1, "v_heads": 3, "layers": "aar"}),
    "qwen35, widths equal": ("qwen35", {"n_ff": 64, "dim": 16, "value_dim": 16, "key_dim": 16}),
    "lfm2": ("lfm2", {}),
    "lfm2moe": ("lfm2", {"n_experts": 5}),
    "lfm2, biases, ends with attention": ("lfm2", {"bias": True, "n_taps": 5, "layers": "ccca"}),
    "lfm2, all widths equal": ("lfm2", {"n_ff": 64, "n_kv": 4}),
    "lfm2, odd rows": ("lfm2", {"n_embd": 40, "n_ff": 33}),
    "granitehybrid": ("granitehybrid", {}),
    "granitehybrid, experts, one group": ("granitehybrid", {"n_experts": 5, "groups": 1}),
    "granitehybrid, widths equal": (
        "granitehybrid",
        {"n_ff": 64, "dim": 16, "groups": 4, "state": 16, "layers": "arr"},
    ),
    "gemma3, q and k of equal width": ("gemma3", {"n_heads": 2}),
    "gemma3, all widths equal": ("gemma3", {"n_heads": 2, "n_embd": 56, "n_ff": 56}),
    "gemma3, odd rows": ("gemma3", {"n_embd": 47, "n_ff": 33}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_odd_shapes_equal_the_reference(tmp_path: Path, shape: str) -> None:
    arch, options = SHAPES[shape]
    assert error(tmp_path, *getattr(tiny, arch)(**options)) < FINE


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("options", [{}, {"k_heads": 3, "v_heads": 12, "n_ff": 96, "layers": "ra"}])
def test_key_heads_of_neighbours_equal_the_reference(
    tmp_path: Path, options: Any, is_old: bool
) -> None:
    assert error(tmp_path, *qwen3next(is_old=is_old, **options)) < FINE


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("name", NAMES)
def test_weights_of_any_format_equal_the_reference(tmp_path: Path, name: str, arch: str) -> None:
    metadata, arrays = getattr(tiny, arch)(**BLOCKS, n_kv=N_KV[arch])
    assert error(tmp_path, metadata, all_matrices(arrays, [name])) < FINE


@pytest.mark.parametrize("activations", ["coarse"], indirect=True)
@pytest.mark.parametrize("name", INTEGER_FORMATS)
def test_coarse_activations_stay_near_the_reference(
    tmp_path: Path, name: str, activations: str
) -> None:
    metadata, arrays = tiny.llama(**BLOCKS, n_kv=4)
    found = error(tmp_path, metadata, all_matrices(arrays, [name]))
    assert FINE < found < COARSE


@pytest.mark.parametrize("activations", ["fine", "coarse", "auto"], indirect=True)
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_formats_may_differ_within_a_model(tmp_path: Path, arch: str, activations: str) -> None:
    """Matrices that share an input then need it quantized and as floats."""
    metadata, arrays = getattr(tiny, arch)(**BLOCKS, n_kv=N_KV[arch])
    found = error(tmp_path, metadata, all_matrices(arrays, list(NAMES)))
    assert found < (FINE if activations == "fine" else COARSE)


@pytest.mark.parametrize("activations", ["fine", "coarse", "auto"], indirect=True)
@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_any_instruction_set_gives_the_same(tmp_path: Path, arch: str, activations: str) -> None:
    metadata, arrays = getattr(tiny, arch)(**BLOCKS, n_kv=N_KV[arch])
    with tiny.open_model(tmp_path, metadata, all_matrices(arrays, list(NAMES))) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        found = []
        for level in isa.levels():
            made = BACKEND.compile(program, file.tensors, LIMITS, isa_name=level)
            found.append(run_tokens(made, TOKENS, WANTED).view(np.uint32).copy())
            made.close()
    assert all((bits == found[0]).all() for bits in found)


# -- life and death ------------------------------------------------------------------------------


@pytest.fixture
def executable(tmp_path: Path) -> Iterator[Executable]:
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = BACKEND.compile(program, file.tensors, LIMITS)
        yield made
        made.close()


def test_cancel_before_a_step_stops_it(executable: Executable) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CancelledError):
        executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel)
    cancel.clear()
    assert executable.run(one_sequence(TOKENS, 0, [0]), cancel=cancel).shape == (1, tiny.N_VOCAB)


def test_nothing_wanted_gives_no_rows(executable: Executable) -> None:
    assert executable.run(one_sequence(TOKENS[:5], 0, [])).shape == (0, tiny.N_VOCAB)


def test_a_copied_page_serves_like_the_one_it_was_copied_from(executable: Executable) -> None:
    prompt, rest = TOKENS[:128], one_sequence(TOKENS[128:140], 128, [11])
    executable.run(one_sequence(prompt, 0, []))
    expected = executable.run(rest).copy()
    for page in (0, 1):
        executable.copy_page(page, page + 4)
    moved = replace(rest, page_tables=np.array([[4, 5, 6]], np.int32))
    assert (executable.run(moved).view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize(("source", "target"), [(-1, 0), (0, 8), (8, 0)])
def test_a_page_outside_the_pool_is_not_copied(
    executable: Executable, source: int, target: int
) -> None:
    with pytest.raises(InvalidParameterError, match="need pages 0 to 7"):
        executable.copy_page(source, target)


def test_close_is_idempotent_and_final(executable: Executable) -> None:
    executable.close()
    executable.close()
    with pytest.raises(ModelClosedError, match="after close"):
        executable.run(one_sequence([1], 0, [0]))


def test_the_most_threads_there_may_be_give_the_same_bits(tmp_path: Path) -> None:
    limits = Limits(n_ctx=256, n_pages=8, n_batch=256, n_threads=MOST_THREADS)
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        many = BACKEND.compile(program, file.tensors, limits)
        few = BACKEND.compile(program, file.tensors, LIMITS)
        assert 1 <= many.n_threads <= MOST_THREADS
        bits = [run_tokens(made, TOKENS, WANTED).view(np.uint32).copy() for made in (many, few)]
        many.close()
        few.close()
    assert (bits[0] == bits[1]).all()


@pytest.mark.parametrize(("few", "many"), [(1, 3), (3, 1), (2, 5)])
def test_prompts_with_a_thread_count_of_their_own_give_the_same_bits(
    executable: Executable, tmp_path: Path, few: int, many: int
) -> None:
    limits = replace(LIMITS, n_threads=few, n_threads_batch=many)
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = BACKEND.compile(program, file.tensors, limits)
        assert (made.n_threads, made.n_threads_batch) == (few, many)
        for _ in range(20):  # the pool grows and shrinks from step to step
            for steps in ((TOKENS[:60], 0), (TOKENS[60:61], 60), (TOKENS[61:69], 61)):
                batch = one_sequence(*steps, [0])
                found, expected = made.run(batch), executable.run(batch)
                assert (found.view(np.uint32) == expected.view(np.uint32)).all()
        made.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused_and_does_not_hang(executable: Executable) -> None:
    """The pool's threads stay in the parent; the parent goes on as before."""
    before = run_tokens(executable, TOKENS, WANTED).copy()
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
    assert (run_tokens(executable, TOKENS, WANTED) == before).all()


def test_sizes_and_progress_are_reported(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    metadata, arrays = tiny.llama()
    with tiny.open_model(tmp_path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        made = BACKEND.compile(
            program, file.tensors, LIMITS, progress=lambda done, total: seen.append((done, total))
        )
    matrices = [a.nbytes for name, a in arrays.items() if a.ndim > 1 and "token_embd" not in name]
    assert seen[-1] == (sum(matrices), sum(matrices))
    assert all(0 <= done <= total for done, total in seen)
    assert made.weights_bytes >= sum(matrices)
    # f16 keys and values of 2 layers and 2 heads; a value of 24 is kept in 32
    assert made.state_bytes == 2 * 8 * 64 * 2 * (24 + 32) * 2
    made.close()


def test_weights_of_no_file_stay_as_they_are(tmp_path: Path) -> None:
    """Pages of a file's map are given back once they are laid out; those of other memory are not.

    The table of tied embeddings is read by every step, after its matrix was laid out.
    """
    with tiny.open_model(tmp_path, *tiny.llama(tied=True, **BLOCKS, n_kv=4)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        heap = {
            name: replace(tensor, data=tensor.data.copy()) for name, tensor in file.tensors.items()
        }
        assert all(tensor.is_mapped for tensor in file.tensors.values())
        assert not any(tensor.is_mapped for tensor in heap.values())
        rows = []
        for tensors in (file.tensors, heap):
            made = BACKEND.compile(program, tensors, LIMITS)
            rows.append(run_tokens(made, TOKENS, WANTED).copy())
            made.close()
        assert (rows[0] == rows[1]).all()
        assert all((heap[name].data == t.data).all() for name, t in file.tensors.items())
