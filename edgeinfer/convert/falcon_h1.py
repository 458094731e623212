"""Say how Falcon H1 becomes GGUF: all factors of its configuration go into its weights."""

import math
from collections.abc import Callable

import numpy as np

from edgeinfer.convert.config import Config
from edgeinfer.convert.family import Change, Family
from edgeinfer.convert.keys import Keys, base_keys
from edgeinfer.convert.mamba2 import CHANGES, RENAMES, mamba2_keys
from edgeinfer.convert.rotation import rope_keys, rope_of
from edgeinfer.convert.weights import Weights, changed, rows_times

Factor = Callable[[Config], float]


def _keys(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    if c.values.flag("mamba_rms_norm", False):
        c.expect("mamba_norm_before_gate", False)  # files have the gate before the norm
    rope = rope_of(c, theta=10000.0)
    return [*base_keys(c), *rope_keys(c, rope), *mamba2_keys(c, _inner(c))]


def _inner(c: Config) -> int:
    expand, n_embd = c.values.integer("mamba_expand", 2, least=1), c.values.integer("hidden_size")
    return c.values.integer("mamba_d_ssm", expand * n_embd, least=1)


def _number(key: str) -> Factor:
    return lambda c: c.values.number(key, 1.0)


def _of_mlp(index: int) -> Factor:
    key = "mlp_multipliers"
    return lambda c: c.numbers(key, c.raw.get(key) or [1.0, 1.0], 2)[index]


def _times(*factors: Factor, inputs: Factor | None = None) -> Change:
    """Multiply what a matrix gives, and what it takes, which its bias has no part in."""

    def change(weights: Weights, c: Config) -> Weights:
        is_matrix = len(weights.shape) > 1
        found = [factor(c) for factor in (*factors, *([inputs] if inputs and is_matrix else []))]
        by = np.float32(math.prod(found))
        return changed(weights, lambda values: values * by)

    return change


def _projected(weights: Weights, c: Config) -> Weights:
    """Multiply the rows of the gate, of what is convolved, of what writes and reads, of steps."""
    shared = c.values.integer("mamba_n_groups", least=1) * c.values.integer("mamba_d_state")
    sizes = [_inner(c), _inner(c), shared, shared, c.values.integer("mamba_n_heads", least=1)]
    if sum(sizes) != weights.n_rows:
        raise c.error("mamba_n_heads", f"{sizes[-1]} (need {sum(sizes)} rows of {weights.n_rows})")
    key = "ssm_multipliers"
    factors = np.repeat(c.numbers(key, c.raw.get(key) or [1.0] * 5, 5), sizes)
    if len(weights.shape) > 1:
        factors = factors * c.values.number("ssm_in_multiplier", 1.0)
    return rows_times(weights, factors.astype(np.float32))


def _embeddings(weights: Weights, c: Config) -> dict[str, Weights]:
    """Where embeddings are the output matrix as well, the file has both: their factors differ."""
    is_tied = c.is_tied
    return {"token_embd": weights} | ({"output": weights} if is_tied else {})


_ATTENDED = _number("attention_in_multiplier")
FALCON_H1 = Family(
    "falcon-h1",
    _keys,
    renames=RENAMES,
    splits=(("token_embd", _embeddings),),
    changes=(
        *CHANGES,
        ("token_embd", _times(_number("embedding_multiplier"))),
        ("output", _times(_number("lm_head_multiplier"))),
        ("attn_q", _times(inputs=_ATTENDED)),
        ("attn_k", _times(_number("key_multiplier"), inputs=_ATTENDED)),
        ("attn_v", _times(inputs=_ATTENDED)),
        ("attn_output", _times(_number("attention_out_multiplier"))),
        ("ssm_in", _projected),
        ("ssm_out", _times(_number("ssm_out_multiplier"))),
        ("ffn_gate", _times(_of_mlp(0))),
        ("ffn_down", _times(_of_mlp(1))),
    ),
)
