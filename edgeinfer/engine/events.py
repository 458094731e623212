"""Name what can happen to a sequence in a step; the engine makes events, callers read them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Of the prompt's `n_total` tokens `n_done` are ready, `n_cached` of them without work."""

    sequence: Sequence
    n_done: int
    n_total: int
    n_cached: int


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """The answer grew by `id`; `logprob` tells how likely it was, if that was asked for."""

    sequence: Sequence
    id: int
    logprob: Sampled | None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows, logits or hidden, of the tokens at `first`, `first + 1`, ...: the reader's own copy."""

    sequence: Sequence
    first: int
    rows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """The last event of a sequence; its `finish_reason` and `error` are set."""

    sequence: Sequence


Event = Progress | Token | Rows | Finished
