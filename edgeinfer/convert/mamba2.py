"""Say how the mixers of Mamba-2 become GGUF: their keys, and the shapes that files have."""

import math

import numpy as np

from edgeinfer.convert.config import Config
from edgeinfer.convert.family import Change, squeezed
from edgeinfer.convert.keys import Keys, u32
from edgeinfer.convert.weights import Weights, changed, reshaped

RENAMES = ((r"\.dt_bias$", ".dt_proj.bias"),)
UNLIMITED = [0.0, math.inf]
_AS_SAVED = [0.0, {"__float__": "Infinity"}]  # as transformers 5 writes what JSON cannot


def mamba2_keys(c: Config, inner: int) -> Keys:
    """Return the metadata of mixers whose states have `inner` columns in all."""
    c.expect("time_step_limit", UNLIMITED, _AS_SAVED, default=UNLIMITED)  # files have no other
    return [
        u32(".ssm.conv_kernel", _either(c, "mamba_d_conv", "conv_kernel", least=2)),
        u32(".ssm.state_size", _either(c, "mamba_d_state", "ssm_state_size")),
        u32(".ssm.group_count", _groups(c)),
        u32(".ssm.time_step_rank", _either(c, "mamba_n_heads", "mamba_num_heads")),
        u32(".ssm.inner_size", inner),
    ]


def _either(c: Config, name: str, other: str, least: int = 1) -> int:
    """Read a number that families name differently."""
    return c.values.integer(other if other in c.values else name, least=least)


def _groups(c: Config) -> int:
    return _either(c, "mamba_n_groups", "n_groups")


def _column(weights: Weights, c: Config) -> Weights:
    return reshaped(weights, weights.n_rows, 1)


def _decay(weights: Weights, c: Config) -> Weights:
    """Files hold minus the exponential of the logarithm that is trained."""
    return changed(_column(weights, c), lambda values: -np.exp(values))


def _norms(weights: Weights, c: Config) -> Weights:
    groups = _groups(c)
    if weights.n_rows % groups:
        raise c.error("mamba_n_groups", f"{groups} (need a divisor of {weights.n_rows})")
    return reshaped(weights, groups, weights.n_rows // groups)


CHANGES: tuple[tuple[str, Change], ...] = (
    ("ssm_conv1d", squeezed),
    ("ssm_a", _decay),
    ("ssm_d", _column),
    ("ssm_norm", _norms),
)
