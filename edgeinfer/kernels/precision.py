"""Choose which matrices get fine (15-bit) activations instead of 8-bit ones, by their names alone.

NOTE: what the choice costs and gives. Divergence from the float32 model, KL averaged over six
texts, as a share of llama.cpp's on the same texts (kl32 of tests/kernels/kl.py, held by
tests/kernels/test_native.py):

    fine where                         SmolLM2-135M Q4_1   Gemma 3 270M Q4_K_M
    nowhere                                  0.59                 0.21
    q, k, v and the output ("auto")          0.26                 0.13
    everywhere ("fine")                      0.0002               0.0001

Fine activations are words: a multiply meets half as many of them as of bytes, so a prompt's matmul
takes up to twice as long; a single token is bound by memory and hardly notices. q, k, v and the
output are a tenth of a model's prompt and more than half of what 8 bits lose.
"""

from collections.abc import Callable

FINE = "fine"  # what `Limits.activations` may say besides "auto"
ALWAYS = ("attn_q.", "attn_k.", "attn_v.", "attn_qkv.", "ffn_gate_inp.", "output.", "token_embd.")


def policy(activations: str) -> Callable[[str], bool]:
    """Return whether the matrix of a name wants fine activations, for `Limits.activations`."""
    if activations == FINE:
        return lambda name: True
    return lambda name: any(part in name for part in ALWAYS)
