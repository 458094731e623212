# Beside llama: factors on embeddings, on what each layer adds, on attention and on the logits.
"""Write the programs of architecture "granite": Granite 3, 4 dense."""

from collections.abc import Mapping

from edgeinfer.arch.shared.decoder import dense
from edgeinfer.arch.shared.granite import granite_decoder
from edgeinfer.arch.shared.hyper import read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    b = Builder("granite", tensors)
    granite_decoder(b, m, tensors, hp, dense(hp, "silu"))
    return b.finish(hp)
