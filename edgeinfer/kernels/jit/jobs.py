"""Hand out the pieces of a kernel's work to the threads that run it, and stop them when asked.

A job is 16 numbers of memory: the next piece, and the address of the flag that cancels.
"""

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.jit.compiler import inlined
from edgeinfer.kernels.jit.verbs import fetch_add, load_i32, load_i64

NEXT, FLAG = 0, 8  # apart, in lines of their own
NO_MORE = 1 << 62


def new_job() -> npt.NDArray[np.int64]:
    """Return the memory of a job; the flag's address is to be set before every step."""
    return np.zeros(16, np.int64)


@inlined
def take(job: int) -> int:
    """Return the number of the next piece, beyond all of them once the step is cancelled."""
    if load_i32(load_i64(job + 8 * FLAG)) != 0:
        return NO_MORE
    piece: int = fetch_add(job, 1)
    return piece
