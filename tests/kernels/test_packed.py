"""Packed matrices give the logits that laying out gives, and a wrong one is laid out afresh."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import CancelledError
from edgeinfer.kernels.backend import Cancel, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.packed import PackedMatrix
from edgeinfer.quant.tensor import Tensor
from tests.arch import tiny
from tests.kernels.block_scales import INTEGER_FORMATS
from tests.kernels.kl import run_tokens
from tests.kernels.law import FLOAT_FORMATS
from tests.kernels.random_weights import all_matrices, random_blocks

native = pytest.importorskip("edgeinfer.kernels.native._native")

LIMITS = Limits(n_ctx=256, n_pages=8, n_batch=256, n_threads=2)
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, tiny.N_VOCAB, 70)]
BLOCKS = {"n_embd": 256, "n_heads": 16, "dim": 16, "n_ff": 512, "n_kv": 4}
NAMES = [*FLOAT_FORMATS, *INTEGER_FORMATS]


def aligned(data: Any, offset: int = 0) -> Any:
    """Copy bytes to memory that begins `offset` past a multiple of 64."""
    room = np.empty(len(data) + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    room[start : start + len(data)] = data
    return room[start : start + len(data)]


def pack(file: GgufFile) -> dict[str, PackedMatrix]:
    program = build_program(file.metadata, file.tensors, n_ctx=256)
    packed = {}
    for matrix in BACKEND.matrices(program, file.tensors):
        data = np.concatenate([piece.copy() for piece in matrix.pieces()])
        assert len(data) == matrix.n_bytes
        packed[matrix.key.name] = PackedMatrix(matrix.key, aligned(data))
    return packed


def logits(file: GgufFile, packed: dict[str, PackedMatrix] | None, **options: Any) -> Any:
    program = build_program(file.metadata, file.tensors, n_ctx=256)
    made = BACKEND.compile(program, file.tensors, LIMITS, packed=packed, **options)
    rows = run_tokens(made, TOKENS, [0, 33, 69]).view(np.uint32).copy()
    n_bytes = made.weights_bytes
    made.close()
    return rows, n_bytes


@pytest.mark.parametrize("shape", [{}, {"tied": True}, {"n_experts": 4}], ids=str)
@pytest.mark.parametrize("level", isa.levels())
def test_logits_are_the_same_bits(tmp_path: Path, level: str, shape: dict[str, Any]) -> None:
    metadata, arrays = tiny.llama(**shape, **BLOCKS)
    with tiny.open_model(tmp_path, metadata, all_matrices(arrays, NAMES)) as file:
        packed = pack(file)
        assert ("token_embd.weight" in packed) == ("tied" in shape)
        assert ("blk.0.ffn_up_exps.weight" in packed) == ("n_experts" in shape)
        (without, n_bytes), (found, n_packed) = (
            logits(file, source, isa_name=level) for source in (None, packed)
        )
    assert (found == without).all()
    assert abs(n_packed - n_bytes) < 64 * (len(packed) + 1)


def test_the_packed_bytes_are_what_is_used(tmp_path: Path) -> None:
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        packed = pack(file)
        key = packed["output.weight"].key
        zeros = aligned(np.zeros(packed["output.weight"].data.nbytes, np.uint8))
        rows, _ = logits(file, packed | {"output.weight": PackedMatrix(key, zeros)})
    assert not rows.any()


@pytest.mark.parametrize(
    "what", ["format", "rows", "columns", "short", "long", "unaligned", "gone"]
)
def test_a_matrix_that_does_not_fit_is_laid_out_afresh(tmp_path: Path, what: str) -> None:
    name = "blk.1.ffn_down.weight"
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        packed = pack(file)
        key, data = packed[name].key, np.full(packed[name].data.nbytes, 63, np.uint8)
        n_bytes = len(data)
        packed[name] = {
            "format": PackedMatrix(replace(key, format="Q8_0"), aligned(data)),
            "rows": PackedMatrix(replace(key, n_rows=key.n_rows - 1), aligned(data)),
            "columns": PackedMatrix(replace(key, n_columns=key.n_columns + 1), aligned(data)),
            "short": PackedMatrix(key, aligned(data)[: n_bytes - 1]),
            "long": PackedMatrix(key, aligned(np.full(n_bytes + 64, 63, np.uint8))),
            "unaligned": PackedMatrix(key, aligned(data, 4)),
            "gone": packed["output.weight"],
        }[what]
        assert (logits(file, packed)[0] == logits(file, None)[0]).all()


@pytest.mark.parametrize("shape", [(50, 512), (2, 25, 512)], ids=str)
def test_a_matrix_of_many_pieces_is_laid_out_whole(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    rows = random_blocks(np.random.default_rng(1), "Q4_K", 50 * 512, 1.0)
    tensor = Tensor("w", shape, FORMATS["Q4_K"], rows.ravel())
    from edgeinfer.kernels.native import packed

    def laid_out() -> Any:
        pieces = packed._to_pack(tensor, packed.format_names()).pieces()
        return [piece.copy() for piece in pieces]

    whole = laid_out()
    monkeypatch.setattr(packed, "PIECE_BYTES", 1)
    many = laid_out()
    assert (len(whole), len(many)) == (1, 4)
    assert (np.concatenate(many) == whole[0]).all()
    assert len(whole[0]) == 64 * 288
    assert np.unpackbits(whole[0]).sum() == np.unpackbits(rows).sum()  # bits are only moved


def test_layouts_are_named_by_format() -> None:
    names = {BACKEND.layout([name]) for name in NAMES}
    assert len(names) == len(NAMES)
    assert BACKEND.layout(["Q4_K", "F32"]) == BACKEND.layout(["F32", "Q4_K", "F32", "I8"])


def test_the_reference_packs_nothing(tmp_path: Path) -> None:
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        assert REFERENCE.layout(["F32"]) is None
        assert REFERENCE.matrices(program, file.tensors) == []


def test_a_cancelled_load_ends_and_frees(tmp_path: Path) -> None:
    cancel = Cancel()
    cancel.set()
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        with pytest.raises(CancelledError, match="loading"):
            BACKEND.compile(program, file.tensors, LIMITS, cancel=cancel)
        cancel.clear()
        BACKEND.compile(program, file.tensors, LIMITS, cancel=cancel).close()
