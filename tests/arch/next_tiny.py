"""Make a tiny qwen3next of a tiny qwen35moe: the same model, its value heads in another order."""

from typing import Any

import numpy as np

from tests.arch import tiny

OLD, NEW = "qwen35moe", "qwen3next"


def qwen3next(
    *, k_heads: int = 2, v_heads: int = 4, key_dim: int = 10, value_dim: int = 18,
    is_old: bool = False, **options: Any,
) -> tuple[dict[str, Any], tiny.Arrays]:  # fmt: skip
    """Return metadata and weights; `is_old`: with one matrix for all that a delta-net reads."""
    sizes = {"k_heads": k_heads, "v_heads": v_heads, "key_dim": key_dim, "value_dim": value_dim}
    metadata, arrays = tiny.qwen35moe(**sizes, **options)
    metadata = {key.replace(OLD, NEW): value for key, value in metadata.items()}
    metadata["general.architecture"] = NEW
    keys = 2 * k_heads * key_dim
    # Of tiled heads the h-th uses key head h % k_heads; here those of a key head are neighbours.
    heads = np.arange(v_heads).reshape(-1, k_heads).T.ravel()
    elements = (heads[:, None] * value_dim + np.arange(value_dim)).ravel()
    behind_keys = np.concatenate([np.arange(keys), keys + elements])
    orders = {
        "attn_qkv.weight": behind_keys,
        "ssm_conv1d.weight": behind_keys,
        "attn_gate.weight": elements,
        **{f"ssm_{name}": heads for name in ("alpha.weight", "beta.weight", "dt.bias", "a")},
    }
    made = {}
    for name, array in arrays.items():
        own = name.split(".", 2)[-1]
        made[name] = array[:, elements] if own == "ssm_out.weight" else array[orders.get(own, ...)]
    for name in [name for name in made if name.endswith("ssm_beta.weight")]:
        layer = name.removesuffix("ssm_beta.weight")
        rates = (made.pop(f"{layer}ssm_{rate}.weight") for rate in ("beta", "alpha"))
        made[f"{layer}ssm_ba.weight"] = by_key_head(k_heads, *rates)
        if is_old:
            mixed = made.pop(f"{layer}attn_qkv.weight")
            parts = np.split(mixed, [keys // 2, keys])
            gate = made.pop(f"{layer}attn_gate.weight")
            made[f"{layer}ssm_in.weight"] = by_key_head(k_heads, *parts, gate)
    return metadata, made


def by_key_head(k_heads: int, *parts: np.ndarray) -> np.ndarray:
    """Return the rows of all parts, those of the first key head before those of the next."""
    cut = [part.reshape(k_heads, -1, part.shape[1]) for part in parts]
    return np.concatenate(cut, axis=1).reshape(-1, parts[0].shape[1])
