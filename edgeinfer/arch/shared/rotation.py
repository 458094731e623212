"""Turn a file's RoPE keys and factor tensors into one frequency table.

The long or short table of longrope is chosen here, once, from the context the program is built
for: cached keys stay valid however long a text grows.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgeinfer.arch.shared.hyper import MAX_CTX, Hyper
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.metadata import REQUIRED, Metadata
from edgeinfer.program import rope
from edgeinfer.program.rope import RopeTable
from edgeinfer.quant.decode import decode
from edgeinfer.quant.tensor import Tensor

MAX_THETA = 1e30
# Far beyond every known model's; what is multiplied and divided by them stays finite in 32 bits.
LEAST_FACTOR, MOST_FACTOR = 1e-6, 1e30
FACTOR_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
SCALING_TYPES = ("none", "linear", "yarn", "longrope")


def rope_dims(m: Metadata, head_dim: int, *, key: str = ".rope.dimension_count") -> int:
    """Return how many elements of a head turn: an even number up to the head's size."""
    n_rot = m.integer(key, head_dim, least=2)
    if n_rot % 2 or n_rot > head_dim:
        raise m.error(key, f"found {n_rot} (need an even number up to the head size {head_dim})")
    return n_rot


def plain_table(m: Metadata, key: str, default: float, n_rot: int, *, name: str) -> RopeTable:
    """Return the unscaled table of the base frequency under `key`."""
    return rope.plain(m.number(key, default, above=1.0, most=MAX_THETA), n_rot, name=name)


def scaled_table(
    m: Metadata,
    tensors: Mapping[str, Tensor],
    hp: Hyper,
    n_rot: int,
    *,
    truncate: bool = True,
    mscale: float | None = None,
) -> RopeTable:
    """Return the table of `rope.freq_base` with the scaling the file names, or brings as tensors.

    `truncate` rounds the ends of YaRN's ramp to whole dimensions. `mscale` is what YaRN multiplies
    cosines and sines by where the file does not say; None for what its paper has.

    Raises UnsupportedModelError for a scaling type it does not know.
    """
    table = plain_table(m, ".rope.freq_base", 10000.0, n_rot, name="global")
    kind = m.text(".rope.scaling.type", "linear")
    if kind not in SCALING_TYPES:
        raise UnsupportedModelError(
            f"{m.where}: key '{m.full_key('.rope.scaling.type')}': found {kind!r} "
            f"(need one of {', '.join(SCALING_TYPES)})"
        )
    if "rope_freqs.weight" in tensors:
        table = rope.divided(table, _divisors(tensors, "rope_freqs.weight", n_rot))
    if kind == "linear":
        legacy = _factor(m, ".rope.scale_linear", 1.0)
        factor = m.number(".rope.scaling.factor", legacy, least=0.0)
        return rope.linear(table, _factor(m, ".rope.scaling.factor", legacy) if factor else 1.0)
    if kind == "yarn":
        return _yarn(m, table, hp, truncate, mscale)
    if kind == "longrope" or "rope_factors_long.weight" in tensors:
        return _longrope(m, tensors, table, hp)
    return table


def _yarn(
    m: Metadata, table: RopeTable, hp: Hyper, truncate: bool, mscale: float | None
) -> RopeTable:
    factor = _factor(m, ".rope.scaling.factor")
    if mscale is None:
        multiplier = m.number(".rope.scaling.yarn_log_multiplier", 0.0, least=0.0)
        mscale = rope.yarn_mscale(factor)
        mscale /= rope.yarn_mscale(factor, multiplier) if multiplier > 0.0 else 1.0
    return rope.yarn(
        table,
        theta=m.number(".rope.freq_base", 10000.0, above=1.0),
        factor=factor,
        n_ctx_original=_original(m, hp),
        beta_fast=_factor(m, ".rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_factor(m, ".rope.scaling.yarn_beta_slow", 1.0),
        mscale=_factor(m, ".rope.scaling.yarn_attn_factor", mscale),
        truncate=truncate,
    )


def _longrope(m: Metadata, tensors: Mapping[str, Tensor], table: RopeTable, hp: Hyper) -> RopeTable:
    original = _original(m, hp)
    which = "long" if hp.n_ctx > original else "short"
    divisors = _divisors(tensors, f"rope_factors_{which}.weight", 2 * len(table.inv_freq))
    default = rope.longrope_mscale(hp.n_ctx_train, original)
    return rope.divided(table, divisors, _factor(m, ".rope.scaling.attn_factor", default))


def _factor(m: Metadata, key: str, default: float = REQUIRED) -> float:
    return m.number(key, default, least=LEAST_FACTOR, most=MOST_FACTOR)


def _original(m: Metadata, hp: Hyper) -> int:
    key = ".rope.scaling.original_context_length"
    return m.integer(key, hp.n_ctx_train, least=1, most=MAX_CTX)


def _divisors(tensors: Mapping[str, Tensor], name: str, n_rot: int) -> npt.NDArray[np.float64]:
    tensor = tensors.get(name)
    shape = None if tensor is None else tensor.shape
    if tensor is None or shape != (n_rot // 2,):
        raise ModelFormatError(f"tensor '{name}': found {shape} (need ({n_rot // 2},))")
    divisors = decode(tensor).astype(np.float64)
    if not (np.isfinite(divisors) & (divisors >= LEAST_FACTOR)).all():
        need = f"finite ones of {LEAST_FACTOR:g} and more"
        raise ModelFormatError(f"tensor '{name}': found factors out of range (need {need})")
    return divisors
