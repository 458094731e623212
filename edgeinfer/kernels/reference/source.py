"""Hold what the closures of the reference backend are made from."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.reference.step import KvPages
from edgeinfer.kernels.reference.weights import Weights
from edgeinfer.program.program import Program
from edgeinfer.program.states import Recurrent
from edgeinfer.quant.imatrix import Sums

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What closures are made from."""

    program: Program
    weights: Weights
    pages: Mapping[int, KvPages]
    snapshots: Mapping[tuple[type[Recurrent], int], Floats]
    observed: Mapping[str, Sums]
