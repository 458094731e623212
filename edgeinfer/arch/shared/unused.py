"""Refuse a file with tensors its program never reads: they would have changed the answers."""

from collections.abc import Mapping

from edgeinfer.arch.shared.rotation import FACTOR_TENSORS
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor

MAX_LISTED = 8
# What a model may have and not need, read for something else than it was made for.
HEADS = frozenset(
    f"{name}.{end}"
    for name in ("output", "cls", "cls.norm", "cls.output")
    for end in ("weight", "bias")
)


def check_all_used(program: Program, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Raise UnsupportedModelError naming the tensors the program has no use for."""
    used = program.weights().keys() | program.left_out | set(FACTOR_TENSORS)
    if program.pooling is not None:
        used |= HEADS
    unused = [name for name in tensors if name not in used]
    if unused:
        listed = ", ".join(repr(name) for name in unused[:MAX_LISTED])
        more = f" and {len(unused) - MAX_LISTED} more" if len(unused) > MAX_LISTED else ""
        raise UnsupportedModelError(
            f"{where}: found tensors architecture '{program.arch}' does not use: {listed}{more} "
            f"(need only those of its {program.n_layers} layers): ignoring them would give wrong "
            "answers; the file is of another kind than it says, or block_count is wrong"
        )
