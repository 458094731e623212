"""Declare what a sequence remembers between steps: paged KV rows and recurrent state.

A declaration says sizes only; the memory belongs to the backend, the pages to the engine.
"""

from dataclasses import dataclass
from typing import Literal

from edgeinfer.errors import ModelFormatError

KvKind = Literal["paged", "step"]


def _check(state: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ModelFormatError(f"program: {state}: {name}: found {size} (need at least 1)")


@dataclass(frozen=True, slots=True)
class Kv:
    """Keys and values of one attention layer, one row for each token of a sequence.

    A row is `n_kv_heads * key_dim` key and `n_kv_heads * value_dim` value elements; where
    `v_is_prefix` only keys are kept and a value is the first `value_dim` elements of its key.
    A `window` above 0 lets rows older than `window - 1` positions be dropped. `step` rows need to
    live for one step only (encoders); a backend may keep them in the pages all the same.
    """

    id: int
    n_kv_heads: int
    key_dim: int
    value_dim: int
    window: int = 0
    v_is_prefix: bool = False
    kind: KvKind = "paged"

    def __post_init__(self) -> None:
        name = f"kv {self.id}"
        _check(name, n_kv_heads=self.n_kv_heads, key_dim=self.key_dim, value_dim=self.value_dim)
        if self.window < 0:
            raise ModelFormatError(f"program: {name}: window: found {self.window} (need 0 or more)")
        if self.v_is_prefix and self.value_dim > self.key_dim:
            raise ModelFormatError(
                f"program: {name}: value_dim: found {self.value_dim} (need at most key_dim "
                f"{self.key_dim}, because values are a prefix of keys)"
            )


@dataclass(frozen=True, slots=True)
class Conv:
    """The last `n_past` inputs of a depthwise convolution, oldest first: `[n_channels, n_past]`."""

    id: int
    n_channels: int
    n_past: int

    def __post_init__(self) -> None:
        _check(f"conv {self.id}", n_channels=self.n_channels, n_past=self.n_past)

    @property
    def n_floats(self) -> int:
        """Elements of the state."""
        return self.n_channels * self.n_past


@dataclass(frozen=True, slots=True)
class Ssm:
    """The Mamba-2 state, float32 `[n_heads, head_dim, state_dim]`."""

    id: int
    n_heads: int
    head_dim: int
    state_dim: int

    def __post_init__(self) -> None:
        _check(
            f"ssm {self.id}",
            n_heads=self.n_heads,
            head_dim=self.head_dim,
            state_dim=self.state_dim,
        )

    @property
    def n_floats(self) -> int:
        """Elements of the state."""
        return self.n_heads * self.head_dim * self.state_dim


@dataclass(frozen=True, slots=True)
class Delta:
    """The gated delta rule's state, float32 `[n_heads, key_dim, value_dim]`."""

    id: int
    n_heads: int
    key_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        _check(
            f"delta {self.id}",
            n_heads=self.n_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
        )

    @property
    def n_floats(self) -> int:
        """Elements of the state."""
        return self.n_heads * self.key_dim * self.value_dim


Recurrent = Conv | Ssm | Delta
State = Kv | Recurrent
