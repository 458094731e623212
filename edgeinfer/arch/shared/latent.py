"""Write latent attention: heads whose keys and values are made of one small row for them all.

What is kept of a token is that row and one head's worth of rotated keys. Files have the matrices
that make keys and values in two forms: one for each, with which queries and outputs are multiplied
instead (so that attention reads the small rows), or both in one, which makes keys and values whole.
"""

from dataclasses import dataclass

from edgeinfer.program.builder import Builder
from edgeinfer.program.rope import RopeTable
from edgeinfer.program.values import Value


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of latent attention.

    Attributes:
        q_rank: of the row that queries are made of, 0 if they are made of x.
        kv_rank: of the row that is kept.
        still_dim: elements of a key that do not turn.
        turned_dim: those that do, the same for all heads.
        is_split: whether the file has one matrix for keys and one for values.
    """

    n_heads: int
    q_rank: int
    kv_rank: int
    still_dim: int
    turned_dim: int
    value_dim: int
    rope: RopeTable
    scale: float
    eps: float
    is_split: bool


def latent_attention(b: Builder, x: Value, layer: str, a: Latent) -> Value:
    """Attend; return the heads' outputs, to be finished by `latent_output`."""
    n = a.n_heads
    q, turned = b.split(_queries(b, x, layer, a), a.still_dim, a.turned_dim, groups=n)
    turned = b.rope(turned, a.rope, n, pairing="interleaved")
    row = b.linear(x, f"{layer}.attn_kv_a_mqa", a.kv_rank + a.turned_dim)
    row, k = b.split(row, a.kv_rank, a.turned_dim)
    row = b.rms_norm(row, f"{layer}.attn_kv_a_norm", a.eps)
    k = b.rope(k, a.rope, 1, pairing="interleaved")
    if a.is_split:
        b.leave_out(f"{layer}.attn_kv_b.weight")
        q = b.head_linear(q, f"{layer}.attn_k_b", a.kv_rank, n)
        kv = b.kv(1, a.kv_rank + a.turned_dim, a.kv_rank, v_is_prefix=True)
        b.kv_store(b.concat(row, k), None, kv)
    else:
        both = b.linear(row, f"{layer}.attn_kv_b", n * (a.still_dim + a.value_dim))
        still, v = b.split(both, a.still_dim, a.value_dim, groups=n)
        kv = b.kv(n, a.still_dim + a.turned_dim, a.value_dim)
        b.kv_store(b.concat(still, k, groups=n, repeat=(False, True)), v, kv)
    return b.attention(b.concat(q, turned, groups=n), kv, n, scale=a.scale)


def latent_output(b: Builder, o: Value, layer: str, a: Latent, width: int) -> Value:
    """Make values of what the heads attended to, if they are not, and project them."""
    if a.is_split:
        o = b.head_linear(o, f"{layer}.attn_v_b", a.value_dim, a.n_heads)
    return b.linear(o, f"{layer}.attn_output", width)


def _queries(b: Builder, x: Value, layer: str, a: Latent) -> Value:
    width = a.n_heads * (a.still_dim + a.turned_dim)
    if not a.q_rank:
        return b.linear(x, f"{layer}.attn_q", width)
    x = b.rms_norm(b.linear(x, f"{layer}.attn_q_a", a.q_rank), f"{layer}.attn_q_a_norm", a.eps)
    return b.linear(x, f"{layer}.attn_q_b", width)
