# Beside granite: experts for the MLP, in some models with one more that all rows meet.
"""Write the programs of architecture "granitemoe": Granite 3 with experts."""

from collections.abc import Mapping

from edgeinfer.arch.shared.granite import granite_decoder, granite_mlp
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    b = Builder("granitemoe", tensors)
    granite_decoder(b, m, tensors, hp, granite_mlp(m, tensors, hp))
    return b.finish(hp)
