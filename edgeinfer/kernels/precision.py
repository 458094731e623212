"""Choose which matrices get fine (15-bit) activations instead of 8-bit ones, by the program alone.

NOTE: what the choice costs and gives. Divergence from the float32 model, KL averaged over six
texts, as a share of llama.cpp's on the same texts (kl32 of tests/kernels/kl.py, held by
tests/kernels/test_native.py):

    fine where                    SmolLM2-135M Q4_1   Gemma 3 270M Q4_K_M
    nowhere                             0.59                 0.22
    the output                          0.50                 0.17
    q, k, v and the output              0.26                 0.14
    all of attention and the output     0.22                 0.13
    everywhere                          0.0002               0.0001

Fine activations are words: a multiply meets half as many of them as of bytes, so a prompt's matmul
takes up to twice as long; a single token is bound by memory and hardly notices. The output is met
by a prompt's last token alone, and what follows a pooling by one row of each text, so there they
cost nothing; attention's matrices are a quarter of the time of a prompt. A small model is where
rounding flips words and where time is plentiful: it gets them there too. A router's choices must
not flip either.
"""

from collections.abc import Callable

from edgeinfer.program.ops import Embed, ExpertLinear, HeadLinear, Linear
from edgeinfer.program.program import Program

FINE = "fine"  # what `Limits.activations` may say besides "auto"
ALWAYS = {"ffn_gate_inp", "output", "token_embd", "cls", "dense_2", "dense_3"}
IF_SMALL = {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"}
# Weights one token meets in a small model: 1,000 tokens of prompt then take a few seconds on two
# old cores.
SMALL = 384_000_000


def policy(program: Program, activations: str) -> Callable[[str], bool]:
    """Return whether the matrix of a name wants fine activations, for `Limits.activations`."""
    if activations == FINE:
        return lambda name: True
    kinds = ALWAYS | IF_SMALL if _weights_met(program) <= SMALL else ALWAYS
    return lambda name: not kinds.isdisjoint(name.split("."))


def _weights_met(program: Program) -> int:
    """Count the weights that one token is multiplied by, without those of the output if tied."""
    tables = {op.table.name for op in program.ops if isinstance(op, Embed)}
    n = 0
    for op in program.ops:
        if isinstance(op, Linear | HeadLinear) and op.weight.name not in tables:
            n += op.weight.size
        elif isinstance(op, ExpertLinear):
            n += op.weight.size // op.weight.shape[0] * op.ids.width
    return n
