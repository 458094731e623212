"""Read the keys `ssm.*`: the sizes of what a layer that recurs keeps of the past."""

from dataclasses import dataclass

from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM, MAX_HEADS
from edgeinfer.loader.metadata import Metadata

MOST_TAPS = 64


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Sizes of a recurrence and of the convolution before it.

    Attributes:
        heads: each with a state of its own.
        groups: of heads that share what writes to their states, and what reads them.
        state: rows of a head's state.
        inner: columns of all heads' states.
        n_taps: positions that the convolution sees, its own among them.
    """

    heads: int
    groups: int
    state: int
    inner: int
    n_taps: int


def read_state(m: Metadata) -> StateSizes:
    """Return the sizes; raises ModelFormatError naming the key at fault."""
    heads = m.integer(".ssm.time_step_rank", least=1, most=MAX_HEADS)
    groups = m.integer(".ssm.group_count", least=1, most=MAX_HEADS)
    inner = m.integer(".ssm.inner_size", least=1, most=MAX_HEADS * MAX_HEAD_DIM)
    if heads % groups:
        raise m.error(".ssm.time_step_rank", f"found {heads} (need a multiple of {groups})")
    if inner % heads:
        raise m.error(".ssm.inner_size", f"found {inner} (need a multiple of {heads})")
    return StateSizes(
        heads=heads,
        groups=groups,
        state=m.integer(".ssm.state_size", least=1, most=MAX_HEAD_DIM),
        inner=inner,
        n_taps=m.integer(".ssm.conv_kernel", least=2, most=MOST_TAPS),
    )
