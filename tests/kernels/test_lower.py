"""Lowering fuses what the C executor can do at once; placement never lets two live values share."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import (
    FUNCTIONS,
    Acts,
    Buffer,
    Instruction,
    Kind,
    Lowered,
)
from edgeinfer.kernels.native.lower import LOWER, lower
from edgeinfer.kernels.native.place import place
from edgeinfer.program import ops, rope
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.arch import tiny

# Shapes whose widths coincide, so that storage is shared wherever it may be, and one of odd widths.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, fused": ("llama", {"bias": False, "n_ff": 96, "dim": 32}),
    "llama, equal": ("llama", {"n_embd": 48, "n_heads": 2, "n_kv": 2, "n_ff": 48, "tied": True}),
    "llama, all equal, fused": (
        "llama",
        {"n_embd": 64, "n_heads": 2, "n_kv": 2, "dim": 32, "n_ff": 64, "bias": False},
    ),
    "llama, experts": ("llama", {"n_experts": 4, "bias": False}),
    "llama, experts, fused": ("llama", {"n_experts": 4, "bias": False, "dim": 32, "n_ff": 96}),
    "gemma3": ("gemma3", {}),
    "lfm2": ("lfm2", {}),
    "qwen35": ("qwen35", {}),
    "qwen35, equal": ("qwen35", {"n_ff": 64, "dim": 16, "value_dim": 16, "key_dim": 16}),
    "granitehybrid": ("granitehybrid", {}),
    "lfm2, equal": ("lfm2", {"n_ff": 64, "n_kv": 4, "bias": True, "layers": "caac"}),
    "gemma3, equal": ("gemma3", {"n_heads": 2, "n_embd": 56, "n_ff": 56}),
    "gemma3, equal, fused": ("gemma3", {"n_heads": 2, "dim": 32, "n_embd": 64, "n_ff": 64}),
}


def lowered_of(path: Path, shape: str) -> Lowered:
    arch, options = SHAPES[shape]
    with tiny.open_model(path, *getattr(tiny, arch)(**options)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        return lower(program, file.tensors)


def layer_of(lowered: Lowered, il: int) -> list[Instruction]:
    """The instructions from a layer's q, k, v to its down-projection."""
    names = [item.weights for item in lowered.instructions]
    first = next(i for i, n in enumerate(names) if f"blk.{il}.attn_q.weight" in n)
    down = {f"blk.{il}.ffn_down.weight", f"blk.{il}.ffn_down_exps.weight"}
    last = next(i for i, n in enumerate(names) if down & set(n))
    return lowered.instructions[first : last + 1]


# -- lowering ------------------------------------------------------------------------------------


def test_kinds_and_functions_are_those_of_c() -> None:
    lib = pytest.importorskip("edgeinfer.kernels.native._native").lib
    assert {kind.name: kind.value for kind in Kind} == {
        name.removeprefix("EI_OP_"): getattr(lib, name)
        for name in dir(lib)
        if name.startswith("EI_OP_")
    }
    assert len(Kind) == lib.EI_N_OPS
    header = Path(__file__).parents[2] / "edgeinfer/csrc/kernels.h"
    found = re.search(r"enum \{ (EI_SILU, .*), EI_N_FUNCTIONS \}", header.read_text())
    assert found
    assert found[1].split(", ") == [f"EI_{name.upper()}" for name in FUNCTIONS]


def test_a_llama_layer_is_seven_ops(tmp_path: Path) -> None:
    """Its first norm belongs to the layer before, or to the embedding."""
    layer = layer_of(lowered_of(tmp_path, "llama, fused"), 0)
    kinds = ["MATMUL", "HEADS", "ATTENTION", "MATMUL", "NORM", "GATED", "MATMUL"]
    assert [item.kind.name for item in layer] == kinds
    qkv, heads, attention, output, norm, gated, down = layer
    assert qkv.weights == tuple(f"blk.0.attn_{x}.weight" for x in "qkv")
    assert heads.rope is not None and heads.kv == 0 and heads.heads == (6, 2, 2)
    assert attention.acts_out is output.acts_in is not None
    assert output.inputs and output.inputs[0] is not None  # the residual
    assert norm.acts_out is gated.acts_in is not None
    assert gated.weights == ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")
    assert gated.acts_out is down.acts_in is not None
    assert down.inputs[0] is output.outputs[0]


def test_a_gemma3_layer_is_seven_ops(tmp_path: Path) -> None:
    """The norms after attention and feed-forward join the residual add and the next norm."""
    lowered = lowered_of(tmp_path, "gemma3, equal, fused")
    layer = layer_of(lowered, 0)
    kinds = ["MATMUL", "HEADS", "ATTENTION", "MATMUL", "NORM", "GATED", "MATMUL"]
    assert [item.kind.name for item in layer] == kinds
    _, heads, attention, output, norm, _, down = layer
    assert heads.vectors == ("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight")
    assert (attention.scalars["behind"], attention.scalars["ahead"]) == (3, 0)
    assert norm.inputs[1] is output.outputs[0]
    assert norm.vectors == ("blk.0.post_attention_norm.weight", "blk.0.ffn_norm.weight")
    after = lowered.instructions[lowered.instructions.index(down) + 1]
    assert after.vectors == ("blk.0.post_ffw_norm.weight", "blk.1.attn_norm.weight")
    assert after.inputs == (norm.outputs[0], down.outputs[0])


def test_a_layer_of_experts_is_nine_ops(tmp_path: Path) -> None:
    """Router, choice, gate with up, down with the sum of the slots and the residual add."""
    layer = layer_of(lowered_of(tmp_path, "llama, experts, fused"), 0)
    attended = ["MATMUL", "HEADS", "ATTENTION", "MATMUL"]
    assert [item.kind.name for item in layer] == [
        *attended,
        *("NORM", "MATMUL", "ROUTE", "EXPERTS_GATED", "EXPERTS"),
    ]
    output, norm, router, route, gated, down = layer[3:]
    assert router.weights == ("blk.0.ffn_gate_inp.weight",)
    assert router.acts_in is norm.acts_out is gated.acts_in
    assert gated.weights == ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight")
    assert gated.gathered is not None and gated.gathered.slots == 2
    assert gated.acts_out is down.acts_in and down.gathered is None
    assert down.inputs == (output.outputs[0], route.outputs[0])
    assert route.routing is gated.routing is down.routing


def test_experts_that_cannot_fuse_are_lowered_alone(tmp_path: Path) -> None:
    """Widths that are no whole blocks."""
    kinds = [item.kind.name for item in layer_of(lowered_of(tmp_path, "llama, experts"), 0)]
    assert kinds[-7:] == "MATMUL ROUTE EXPERTS EXPERTS GATE EXPERT_ACTS EXPERTS".split()


def test_what_cannot_fuse_is_lowered_alone(tmp_path: Path) -> None:
    """Biases on gate and up, widths that are no whole blocks."""
    kinds = [item.kind.name for item in layer_of(lowered_of(tmp_path, "llama"), 0)]
    assert kinds == "MATMUL HEADS ATTENTION NORM MATMUL NORM MATMUL GATE MATMUL".split()


def test_activations_come_in_the_forms_their_matrices_need(tmp_path: Path) -> None:
    def described(x: Acts | None) -> tuple[bool, bool]:
        assert x is not None
        return x.integers, x.floats

    metadata, arrays = tiny.llama(bias=False, n_embd=64, n_ff=64, dim=32)
    q8, shape = "blk.0.attn_q.weight", arrays["blk.0.attn_q.weight"].shape
    gate, gate_shape = "blk.0.ffn_gate.weight", arrays["blk.0.ffn_gate.weight"].shape
    up = "blk.0.ffn_up.weight"
    mixed = arrays | {q8: ("Q8_0", shape), gate: ("Q4_0", gate_shape), up: ("Q4_0", gate_shape)}
    with tiny.open_model(tmp_path, metadata, mixed) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        qkv, _, _, output, _, gated, _ = layer_of(lower(program, file.tensors), 0)
    assert described(qkv.acts_in) == (True, True)
    assert described(output.acts_in) == (False, True)
    assert described(gated.acts_in) == (True, False)


# -- ops the executor lacks ----------------------------------------------------------------------

Write = Callable[[Builder, Any], Any]


def written(write: Write) -> tuple[Program, dict[str, Tensor]]:
    """A program of one attention layer with the op under test before its output."""
    b = Builder("test", {})
    x = b.embed("token_embd", 8, 32)
    b.output("logits", write(b, x))

    class Sizes:
        n_vocab, n_embd, n_layers, n_ctx, n_ctx_train = 8, 32, 1, 64, 64

    program = b.finish(Sizes())
    tensors = {
        name: Tensor(name, ref.shape, FORMATS["F32"], np.zeros(4 * ref.size, np.uint8))
        for name, ref in program.weights().items()
    }
    return program, tensors


def test_norms_with_weights_for_each_head_do_not_join_the_append() -> None:
    def attended(b: Builder, x: Any) -> Any:
        q, k = (b.rms_norm(x, name, 1e-5, groups=4, own=True) for name in ("q_norm", "k_norm"))
        q, k = (b.rope(value, rope.plain(1e4, 8), 4, pairing="half") for value in (q, k))
        kv = b.kv(4, 8, 8)
        b.kv_store(k, x, kv)
        return b.attention(q, kv, 4, scale=1.0)

    vectors = [item.vectors for item in lower(*written(attended)).instructions]
    assert ("q_norm.weight",) in vectors and ("k_norm.weight",) in vectors


def test_every_op_is_lowered() -> None:
    assert set(LOWER) == set(ops.OPS)


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda b, x: b.concat(x, x, x, x), "concat of 4"),
    ],
)
def test_a_use_of_an_op_it_lacks_is_named(write: Write, named: str) -> None:
    program, tensors = written(write)
    with pytest.raises(UnsupportedModelError, match=f"native backend: .*{named}"):
        lower(program, tensors)


# -- placement -----------------------------------------------------------------------------------

# Of each kind, which operand's storage a result may take: pairs (input, output). The C code reads
# that operand's row, or element, before it writes this one's.
TAKES = {
    Kind.NORM: {(0, 0), (0, 1), (1, 0), (1, 1)},
    Kind.LAYER_NORM: {(0, 0)},
    Kind.MATMUL: {(0, 0)},
    Kind.HEADS: {(0, 0), (1, 1)},
    Kind.ACT: {(0, 0)},
    Kind.GATE: {(0, 0), (1, 0)},
    Kind.ADD: {(0, 0), (1, 0)},
    Kind.MULTIPLY: {(0, 0), (1, 0)},
    Kind.SCALE: {(0, 0)},
}


def check_storage(lowered: Lowered, buffers: list[Buffer], acts: list[Acts]) -> None:
    """Walk the step, keeping what each storage holds; every read must find what was meant."""
    holds: dict[tuple[type, int], object] = {}
    for item in lowered.instructions:
        for x in item.reads():
            assert holds.get((type(x), x.number)) is x, f"{item.kind.name} reads what was lost"
        for j, out in enumerate(item.outputs):
            for i, into in enumerate(item.inputs):
                if out is not None and into is not None and out.number == into.number:
                    assert (i, j) in TAKES.get(item.kind, set()), f"{item.kind.name} {i} to {j}"
        if item.acts_in is not None and item.acts_out is not None:
            assert item.acts_in.number != item.acts_out.number
        if item.kind is Kind.NORM and len(item.inputs) > 1 and item.inputs[1] is not None:
            holds.pop((Buffer, item.inputs[1].number))  # a branch is normed where it stands
        made = list(item.writes())
        assert len({(type(x), x.number) for x in made}) == len(made), "two results, one storage"
        for x in made:
            assert 0 <= x.number < len(buffers if isinstance(x, Buffer) else acts)
            holds[type(x), x.number] = x
            fits(x, buffers, acts)
    assert holds[Buffer, lowered.logits.number] is lowered.logits


def fits(x: Buffer | Acts, buffers: list[Buffer], acts: list[Acts]) -> None:
    """The storage must be made for such a value: the C executor sizes it by its first one."""
    store = buffers[x.number] if isinstance(x, Buffer) else acts[x.number]
    assert store.width == x.width
    if isinstance(x, Acts):
        fields = [name for name in Acts.__slots__ if name != "number"]
        assert [getattr(store, f) for f in fields] == [getattr(x, f) for f in fields]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_live_value_loses_its_storage(tmp_path: Path, shape: str) -> None:
    lowered = lowered_of(tmp_path, shape)
    check_storage(lowered, *place(lowered))


@pytest.mark.parametrize("shape", SHAPES)
def test_storage_does_not_grow_with_the_layers(tmp_path: Path, shape: str) -> None:
    lowered = lowered_of(tmp_path, shape)
    buffers, acts = place(lowered)
    # as many as its widths need
    assert len(buffers) <= {"qwen35": 19, "granitehybrid": 17}.get(shape, 13)
    assert len(acts) <= 8


@pytest.mark.parametrize("shape", ["llama, all equal, fused", "gemma3, equal, fused"])
def test_the_checker_sees_any_two_storages_made_one(tmp_path: Path, shape: str) -> None:
    """Every pair of storages holds values that live at once, so no pair may be merged."""
    lowered = lowered_of(tmp_path, shape)
    buffers, acts = place(lowered)
    made = {id(x): x for item in lowered.instructions for x in item.writes()}.values()
    numbers = [(x, x.number) for x in made if isinstance(x, Buffer)]
    seen = 0
    for lost in range(1, len(buffers)):
        for x, number in numbers:
            x.number = lost - 1 if number == lost else number
        try:
            check_storage(lowered, buffers, acts)
        except AssertionError:
            seen += 1
    assert seen == len(buffers) - 1
