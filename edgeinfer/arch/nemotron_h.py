# Beside granitehybrid: a layer is one part, which attends, recurs or is an MLP without a gate whose
# activation is the square of what is positive; no factors, and nothing turns.
"""Write the programs of architecture "nemotron_h": Nemotron-H, Nemotron Nano 2."""

from collections.abc import Mapping

from edgeinfer.arch.shared.decoder import plain
from edgeinfer.arch.shared.nemotron import nemotron_decoder, read_nemotron
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_nemotron(m, tensors, n_ctx)
    b = Builder("nemotron_h", tensors)
    nemotron_decoder(b, m, hp, plain(hp, "relu2"))
    return b.finish(hp)
