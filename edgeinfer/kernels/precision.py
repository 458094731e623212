"""Choose which matrices get fine (15-bit) activations instead of 8-bit ones, by the program alone.

NOTE: what the choice costs and gives. Fine activations meet the codes twice, so the integer part of
a matmul takes twice as long; a single token is bound by memory and hardly notices. Divergence from
the float32 model, KL averaged over six texts, as a share of llama.cpp's on the same texts (kl32 of
tests/kernels/kl.py, with `policy` replaced; the last row is held by tests/kernels/test_native.py):

    fine where                 SmolLM2-135M Q4_1   Gemma 3 270M Q4_K_M
    nowhere                          0.59                 0.21
    q, k, v and the output           0.26                 0.13
    everywhere                       0.0002               0.0001

A small model is where rounding flips words and where time is plentiful: it gets them everywhere.
"""

from collections.abc import Callable

from edgeinfer.program.ops import Embed, ExpertLinear, Linear
from edgeinfer.program.program import Program

# Weights one token meets in a model that is fine everywhere: 1,000 tokens of prompt then take a few
# seconds on two old cores.
SMALL = 384_000_000
ALWAYS = ("attn_q.", "attn_k.", "attn_v.", "attn_qkv.", "ffn_gate_inp.", "output.", "token_embd.")


def policy(program: Program) -> Callable[[str], bool]:
    """Return whether the matrix of a name wants fine activations."""
    tables = {op.table.name for op in program.ops if isinstance(op, Embed)}
    multiplied = sum(
        op.weight.size
        for op in program.ops
        if isinstance(op, Linear) and op.weight.name not in tables
    )
    multiplied += sum(
        op.weight.size // op.weight.shape[0] * op.ids.width
        for op in program.ops
        if isinstance(op, ExpertLinear)
    )
    if multiplied <= SMALL:
        return lambda name: True
    return lambda name: any(part in name for part in ALWAYS)
