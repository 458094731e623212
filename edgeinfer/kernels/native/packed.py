"""Lay matrices out in X outside an executable, and name the layout: what packs need.

X groups 16 rows; csrc/formats.h draws it.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.guard import Guard
from edgeinfer.kernels.native.instructions import Instruction, Kind
from edgeinfer.kernels.native.lower import lower
from edgeinfer.program.program import Program
from edgeinfer.quant.packed import Bytes, MatrixKey, MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor

ALIGNMENT = 64  # of a matrix in memory, as csrc/exec.c gives it
GROUP_ROWS = 16  # EI_LANES of csrc/base.h
PIECE_BYTES = 4 << 20


def is_table(instruction: Instruction) -> bool:
    """Tell whether an instruction looks rows of its weights up where they lie in the file."""
    return instruction.kind is Kind.EMBED


def shape_of(tensor: Tensor) -> tuple[int, int, int]:
    """Return matrices (1, or the experts), rows of each, columns."""
    if len(tensor.shape) == 3:
        return tensor.shape[0], tensor.shape[1], tensor.shape[2]
    return 1, tensor.n_rows, tensor.n_columns


def key_of(tensor: Tensor) -> MatrixKey:
    """Return what a packed matrix must agree in with a tensor."""
    return MatrixKey(tensor.name, tensor.format.name, *shape_of(tensor))


def format_names() -> list[str]:
    """List the formats the kernels know; a name's index is its number in C."""
    from edgeinfer.kernels.native._native import ffi, lib

    return str(ffi.string(lib.ei_format_names()).decode()).split()


def layout(formats: Iterable[str]) -> str:
    """Name the layout of these formats; packs made under another name are of no use.

    The name comes from what C makes of fixed blocks: a changed layout cannot keep its name.
    """
    from edgeinfer.kernels.native._native import lib

    known = format_names()
    names = sorted(name for name in set(formats) if name in known)
    text = " ".join(f"{name}:{lib.ei_x_layout(known.index(name)):016x}" for name in names)
    return "x-" + blake2b(text.encode(), digest_size=16).hexdigest()


def matrices(program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
    """List the matrices that compiling this program would lay out, in the order of their use.

    Raises UnsupportedModelError as lowering does.
    """
    names = dict.fromkeys(
        name
        for instruction in lower(program, tensors).instructions
        if not is_table(instruction)
        for name in instruction.weights
    )
    known = format_names()
    return [_to_pack(tensors[name], known) for name in names if tensors[name].format.name in known]


def ready(packed: PackedMatrix | None, tensor: Tensor, format_number: int) -> Any:
    """Return the groups of a packed matrix for C, or None if it is not this tensor in X."""
    from edgeinfer.kernels.native._native import ffi, lib

    if packed is None or packed.key != key_of(tensor):
        return None
    n_bytes = lib.ei_x_bytes(format_number, *shape_of(tensor))
    if packed.data.nbytes != n_bytes or packed.data.ctypes.data % ALIGNMENT:
        return None
    return ffi.from_buffer("uint8_t[]", packed.data)


def _to_pack(tensor: Tensor, known: list[str]) -> MatrixToPack:
    from edgeinfer.kernels.native._native import lib

    number = known.index(tensor.format.name)
    n_bytes = int(lib.ei_x_bytes(number, *shape_of(tensor)))
    return MatrixToPack(key_of(tensor), n_bytes, lambda: _pieces(tensor, number, n_bytes))


def _pieces(tensor: Tensor, number: int, n_bytes: int) -> Iterator[Bytes]:
    """Yield the groups; each piece is overwritten by the next."""
    from edgeinfer.kernels.native._native import ffi, lib

    level = isa.chosen().encode()
    n_matrices, n_rows, n_columns = shape_of(tensor)
    n_groups = n_matrices * -(-n_rows // GROUP_ROWS)
    group_bytes = n_bytes // n_groups
    at_once = max(1, min(n_groups, PIECE_BYTES // group_bytes))
    piece = np.empty(at_once * group_bytes, np.uint8)
    guard = Guard([tensor.data])
    source = ffi.from_buffer("uint8_t[]", tensor.data)
    target = ffi.from_buffer("uint8_t[]", piece, require_writable=True)
    shape = (n_matrices, n_rows, n_columns)
    for first in range(0, n_groups, at_once):
        n = min(at_once, n_groups - first)
        status = lib.ei_repack(level, number, *shape, source, first, n, target)
        assert status == lib.EI_OK
        guard.check()
        yield piece[: n * group_bytes]
