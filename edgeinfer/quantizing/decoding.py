"""Choose who decodes rows: the compiled decoders, or NumPy's where nothing was compiled."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.native import isa
from edgeinfer.quant import decode as slow
from edgeinfer.quant.tensor import Tensor

Decode = Callable[[Tensor], npt.NDArray[np.float32]]


def decoder() -> Decode:
    """Return the function that decodes a tensor to float32; the bits are the same either way."""
    if isa.why_unavailable() is not None:
        return slow.decode
    from edgeinfer.kernels.native.decode import decode

    return decode
