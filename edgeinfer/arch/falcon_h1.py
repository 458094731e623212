# Beside granitehybrid: each layer both attends and recurs, over the same rows, and has an MLP; all
# its factors are in the weights. Heads turn by halves.
"""Write the programs of architecture "falcon-h1": Falcon H1."""

from collections.abc import Mapping

from edgeinfer.arch.shared.blocks import Heads, heads_of
from edgeinfer.arch.shared.decoder import Mixer, attention, decoder, dense
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.arch.shared.mamba2 import mamba2
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.arch.shared.state_sizes import read_state
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    recur = mamba2(read_state(m), hp.eps)
    plan = [_both(heads_of(hp, il, rope), recur) for il in range(hp.n_layers)]
    b = Builder("falcon-h1", tensors)
    decoder(b, hp, plan, dense(hp, "silu"))
    return b.finish(hp)


def _both(heads: Heads, recur: Mixer) -> Mixer:
    attend = attention(heads)
    return lambda b, x, layer: [*attend(b, x, layer), *recur(b, x, layer)]
