# Beside granitemoe: most layers do not attend, they are those of Mamba-2; in most models nothing
# turns, and some have one MLP in place of experts.
"""Write the programs of architecture "granitehybrid": Granite 4 hybrids."""

from collections.abc import Mapping

from edgeinfer.arch.shared.granite import granite_decoder, granite_mlp
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.mamba2 import mamba2
from edgeinfer.arch.shared.state_sizes import read_state
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, is_hybrid=True)
    b = Builder("granitehybrid", tensors)
    mixer = mamba2(read_state(m), hp.eps)
    granite_decoder(b, m, tensors, hp, granite_mlp(m, tensors, hp), mixer)
    return b.finish(hp)
