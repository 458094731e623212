"""Translate a configuration's RoPE into GGUF's keys and factor tensors.

A kind of scaling that has no form in a GGUF file is refused, and so is an unknown one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.keys import Keys, f32, text, u32
from edgeinfer.convert.weights import Weights, computed
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.metadata import REQUIRED, Metadata

KINDS = ("default", "linear", "llama3", "longrope", "proportional", "yarn")
STILL = 1e30  # a divisor after which a pair does not turn


@dataclass(frozen=True, slots=True)
class Rope:
    """How the heads of some layers turn: `values` has the numbers of its kind."""

    kind: str
    theta: float
    n_rot: int
    values: Metadata
    raw: Mapping[str, Any]


def rope_of(
    c: Config,
    layer_type: str = FULL,
    *,
    theta: float = REQUIRED,
    head_dim: int | None = None,
    partial: float = 1.0,
    truncates: bool = True,
) -> Rope:
    """Return the RoPE of a kind of layers.

    `theta` and `partial`, the share of a head that turns, are the class's defaults; `truncates`:
    the architecture rounds the ends of YaRN's ramp, which no key says. Raises ModelFormatError, or
    UnsupportedModelError for a kind of scaling that has no form in a file.
    """
    raw: Any = c.raw.get("rope_parameters") or c.raw.get("rope_scaling") or {}
    if isinstance(raw, dict) and isinstance(raw.get(layer_type), dict):
        raw = raw[layer_type]
    elif isinstance(raw, dict) and any(isinstance(raw.get(kind), dict) for kind in (FULL, SLIDING)):
        raise c.error("rope_parameters", f"none for {layer_type} (need it beside the others)")
    values = c.section(raw, "rope_parameters")
    kind = values.text("rope_type", values.text("type", "default"))
    kind = {"su": "longrope"}.get(kind, kind)
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"{values.where}: key 'rope_type': found {quote(kind)} (need one of "
            f"{', '.join(KINDS)}); a GGUF file has no form for others"
        )
    if kind == "yarn" and values.flag("truncate", True) is not truncates:
        need = str(truncates).lower()
        raise values.error("truncate", f"found {str(not truncates).lower()} (need {need})")
    base = values.number("rope_theta", c.values.number("rope_theta", None, above=1.0), above=1.0)
    if base is None:
        base = c.values.number("rope_theta", theta, above=1.0)
    whole = c.values.number("partial_rotary_factor", partial, above=0.0, most=1.0)
    share = values.number("partial_rotary_factor", whole, above=0.0, most=1.0)
    n_rot = head_dim or c.head_dim
    return Rope(kind, base, n_rot if kind == "proportional" else int(n_rot * share), values, raw)


def rope_keys(c: Config, rope: Rope) -> Keys:
    """Return the keys of a RoPE."""
    keys = [u32(".rope.dimension_count", rope.n_rot), f32(".rope.freq_base", rope.theta)]
    return keys + _KEYS[rope.kind](c, rope)


def rope_tensors(c: Config, rope: Rope) -> dict[str, Weights]:
    """Return the divisors of the frequencies, where the kind has some."""
    if rope.kind == "llama3":
        return {"rope_freqs.weight": computed(_llama3(rope))}
    if rope.kind == "proportional":
        return {"rope_freqs.weight": computed(_proportional(rope))}
    if rope.kind != "longrope":
        return {}
    return {
        f"rope_factors_{length}.weight": computed(
            c.numbers(f"{length}_factor", rope.raw.get(f"{length}_factor"), rope.n_rot // 2)
        )
        for length in ("long", "short")
    }


def original_length(c: Config, rope: Rope) -> int:
    """Return the length that a scaled RoPE was trained for."""
    key = "original_max_position_embeddings"
    # Phi 3 has it at the top, and there it counts.
    found = c.values.integer(key, None, least=1)
    return rope.values.integer(key, least=1) if found is None else found


def _none(c: Config, rope: Rope) -> Keys:
    return []


def _linear(c: Config, rope: Rope) -> Keys:
    factor = rope.values.number("factor", above=0.0)
    return [text(".rope.scaling.type", "linear"), f32(".rope.scaling.factor", factor)]


def _longrope(c: Config, rope: Rope) -> Keys:
    original = original_length(c, rope)
    if original < 2:  # its logarithm is divided by
        raise c.error("original_max_position_embeddings", f"{original} (need at least 2)")
    length = c.values.integer("max_position_embeddings", least=1)
    scale = rope.values.number("factor", length / original, above=0.0)
    mscale = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    return [
        text(".rope.scaling.type", "longrope"),
        u32(".rope.scaling.original_context_length", original),
        f32(".rope.scaling.attn_factor", rope.values.number("attention_factor", mscale)),
    ]


def yarn_keys(c: Config, rope: Rope) -> Keys:
    """Return the keys of YaRN, without what it multiplies cosines and sines by."""
    values = rope.values
    return [
        text(".rope.scaling.type", "yarn"),
        f32(".rope.scaling.factor", values.number("factor", above=0.0)),
        u32(".rope.scaling.original_context_length", original_length(c, rope)),
        f32(".rope.scaling.yarn_beta_fast", values.number("beta_fast", 32.0, above=0.0)),
        f32(".rope.scaling.yarn_beta_slow", values.number("beta_slow", 1.0, above=0.0)),
    ]


def _yarn(c: Config, rope: Rope) -> Keys:
    values, keys = rope.values, yarn_keys(c, rope)
    factor = values.number("attention_factor", None, above=0.0)
    mscale, mscale_all = (values.number(name, 0.0) for name in ("mscale", "mscale_all_dim"))
    if factor is not None:
        keys.append(f32(".rope.scaling.yarn_attn_factor", factor))
    elif mscale and mscale_all:
        if mscale != 1.0:
            raise UnsupportedModelError(
                f"{values.where}: key 'mscale': found {mscale} (need 1): a GGUF file has no form "
                "for others"
            )
        keys.append(f32(".rope.scaling.yarn_log_multiplier", mscale_all))
    return keys


def _llama3(rope: Rope) -> np.ndarray:
    """Return what each frequency is divided by: long waves by all of it, short ones not."""
    number = rope.values.number
    factor = number("factor", above=0.0)
    low, high = number("low_freq_factor", above=0.0), number("high_freq_factor", above=0.0)
    if not low < high:
        raise rope.values.error("high_freq_factor", f"found {high} (need more than {low})")
    original = number("original_max_position_embeddings", above=0.0)
    waves = 2 * math.pi * rope.theta ** (np.arange(0, rope.n_rot, 2) / rope.n_rot)
    smooth = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    return 1 / ((1 - smooth) / factor + smooth)


def _proportional(rope: Rope) -> np.ndarray:
    """Return what each frequency is divided by: beyond the first share of them all stand still."""
    number = rope.values.number
    share = number("partial_rotary_factor", 1.0, above=0.0, most=1.0)
    turning = int(share * rope.n_rot // 2)
    factor = number("factor", 1.0, above=0.0)
    return np.where(np.arange(rope.n_rot // 2) < turning, factor, STILL)


_KEYS = {
    "default": _none,
    "linear": _linear,
    "llama3": _none,
    "longrope": _longrope,
    "proportional": _none,
    "yarn": _yarn,
}
