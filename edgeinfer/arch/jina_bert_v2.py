# Beside bert: a token counts less the farther it is, by a slope of each head, instead of learned
# positions, and the MLP has a gate, in a matrix of its own or before the rows of the other.
"""Write the programs of architecture "jina-bert-v2": Jina Embeddings 2."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edgeinfer.arch.shared.blocks import fused_mlp, gated_mlp, heads_of
from edgeinfer.arch.shared.encoder import encoder
from edgeinfer.arch.shared.hyper import LAYER_EPS, read_hyper
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value
from edgeinfer.quant.tensor import Tensor


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx, eps=LAYER_EPS, is_encoder=True)
    b = Builder("jina-bert-v2", tensors)
    plan = [
        replace(heads_of(hp, il, None), slopes=b.constant("slopes", slopes(hp.n_heads[il])))
        for il in range(hp.n_layers)
    ]

    def mlp(b: Builder, x: Value, il: int) -> Value:
        is_fused = not b.has(f"blk.{il}.ffn_gate.weight")
        return (fused_mlp if is_fused else gated_mlp)(b, x, f"blk.{il}", hp.n_ff[il], "gelu_erf")

    encoder(b, m, hp, plan, mlp)
    return b.finish(hp)


def slopes(n_heads: int) -> npt.NDArray[np.float64]:
    """Return what a head takes from a score for each position of distance: 2^-8 for the last.

    Where the heads are no power of two, those beyond it lie between the others.
    """
    n: int = 1 << (n_heads.bit_length() - 1)
    whole = 2.0 ** (-8 * np.arange(1, n + 1) / n)
    between = 2.0 ** (-4 * np.arange(1, 2 * (n_heads - n), 2) / n)
    return np.concatenate([whole, between])
