"""Say what part of a model a weight is, and which weights are never quantized, by their names.

The groups are those that quantization recipes tell apart; the names are GGUF's. What stays as it is
are small tensors on which much depends: norms, routers, convolutions, positions. Knows no recipe.
"""

import re
from collections.abc import Container, Iterable, Sequence

# A role and the pieces of names that give it, in this order of precedence.
_PIECES = (
    ("attn_v", ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")),
    ("attn_k", ("attn_k.weight",)),
    ("attn_q", ("attn_q.weight",)),
    ("attn_output", ("attn_output.weight",)),
    ("ffn_up", ("ffn_up",)),
    ("ffn_gate", ("ffn_gate",)),
    ("ffn_down", ("ffn_down",)),
)
OUTPUT, EMBEDDINGS = "output.weight", "token_embd.weight"
_WHOLE = {
    OUTPUT: "output",
    EMBEDDINGS: "token_embd",
    "per_layer_token_embd.weight": "token_embd",
}
OTHER = "other"

_KEPT_WHOLE = ("position_embd.weight", "token_types.weight")
_KEPT = re.compile(
    r"""_norm\.weight | ffn_gate_inp\.weight | ffn_gate_tid2eid\.weight | altup | laurel
    | per_layer_model_proj | ssm_conv1d | shortconv\.conv\.weight
    | indexer\.[kq]_proj\.weight | attn_rel_b\.weight
    | time_mix_(first|w[012]|v[012]|a[012]|g[12]|decay_w[12]|lerp_fused)\.weight
    | \.position_embd | sam\.(pos_embd|neck\.|net_) | \.rel_pos | \.patch_(embd|merger)
    | a\.rvq\.codebook | mm\.a\.code_embd""",
    re.VERBOSE,
)
_LAYER = re.compile(r"blk\.(\d+)\.")


def role_of(name: str) -> str:
    """Return the role of a weight: "output", "token_embd", "attn_v", ..., or OTHER."""
    if name in _WHOLE:
        return _WHOLE[name]
    return next((role for role, pieces in _PIECES if any(p in name for p in pieces)), OTHER)


def output_of(names: Container[str]) -> str:
    """Return the name of the matrix that makes logits, given those of a model's tensors."""
    return OUTPUT if OUTPUT in names else EMBEDDINGS


def may_be_quantized(name: str, shape: Sequence[int]) -> bool:
    """Tell whether a tensor is a matrix, or several, that recipes quantize."""
    is_matrix = any(n > 1 for n in shape[:-1])
    return (
        is_matrix
        and name.endswith("weight")
        and name not in _KEPT_WHOLE
        and _KEPT.search(name) is None
    )


def layer_of(name: str) -> int:
    """Return the layer a weight belongs to, -1 for those outside all layers."""
    found = _LAYER.match(name)
    return int(found[1]) if found else -1


def in_layer_order(names: Iterable[str]) -> list[str]:
    """Return the names from the first layer to the last, those of no layer in front."""
    return sorted(names, key=lambda name: (layer_of(name), name))
