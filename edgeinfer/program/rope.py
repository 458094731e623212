"""Compute the frequency table of each kind of RoPE scaling, in float64.

A table is all a backend ever learns of RoPE scaling. Formulas: the papers named below, in the form
Hugging Face's `modeling_rope_utils.py` gives them.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RopeTable:
    """Angles of position p: `p * inv_freq`, `(n_rot / 2,)`; sines and cosines times `mscale`.

    `name` is for printed programs only.
    """

    name: str
    inv_freq: Floats
    mscale: float = 1.0


def plain(theta: float, n_rot: int, *, name: str = "global") -> RopeTable:
    """Return inv_freq_i = theta^(-2i / n_rot), i below n_rot / 2 (RoFormer, arXiv 2104.09864)."""
    return RopeTable(name, theta ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot))


def linear(table: RopeTable, factor: float) -> RopeTable:
    """Stretch all wavelengths by `factor` (position interpolation, arXiv 2306.15595)."""
    return RopeTable(table.name, table.inv_freq / factor, table.mscale)


def divided(table: RopeTable, divisors: Floats, mscale: float = 1.0) -> RopeTable:
    """Stretch each wavelength by its own divisor, `(n_rot / 2,)` (llama3, longrope)."""
    return RopeTable(table.name, table.inv_freq / divisors, table.mscale * mscale)


def llama3_divisors(
    table: RopeTable, *, factor: float, low: float, high: float, n_ctx_original: int
) -> Floats:
    """Return the divisors Llama 3.1 converters store as `rope_freqs.weight`.

    Wavelengths below n_ctx_original / high stay, those above n_ctx_original / low are stretched by
    `factor`, and those between are blended.
    """
    turns = n_ctx_original * table.inv_freq / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)


def longrope_mscale(n_ctx_max: int, n_ctx_original: int) -> float:
    """Return sqrt(1 + ln(s) / ln(original)), s = max / original; 1 if s <= 1 (arXiv 2402.13753)."""
    stretch = n_ctx_max / n_ctx_original
    if stretch <= 1.0 or n_ctx_original <= 1:
        return 1.0
    return math.sqrt(1.0 + math.log(stretch) / math.log(n_ctx_original))


def yarn_mscale(factor: float, log_multiplier: float = 1.0) -> float:
    """Return 1 + 0.1 * log_multiplier * ln(factor), 1 if factor <= 1 (YaRN, arXiv 2309.00071)."""
    return 1.0 if factor <= 1.0 else 1.0 + 0.1 * log_multiplier * math.log(factor)


def yarn(
    table: RopeTable,
    *,
    theta: float,
    factor: float,
    n_ctx_original: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    mscale: float = 1.0,
    truncate: bool = True,
) -> RopeTable:
    """Stretch slow frequencies by `factor`, keep fast ones, ramp between (arXiv 2309.00071).

    beta_fast and beta_slow are the turns within `n_ctx_original` where the ramp begins and ends;
    `truncate` rounds its ends to whole dimensions.
    """
    n_rot = 2 * len(table.inv_freq)

    def dimension(turns: float) -> float:
        return n_rot * math.log(n_ctx_original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(beta_fast), dimension(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n_rot - 1)
    ramp = np.clip((np.arange(n_rot // 2) - low) / max(0.001, high - low), 0.0, 1.0)
    inv_freq = table.inv_freq / factor * ramp + table.inv_freq * (1.0 - ramp)
    return RopeTable(table.name, inv_freq, mscale)
