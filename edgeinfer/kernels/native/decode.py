"""Decode tensors to floats with the compiled decoders: the bits of `quant.decode`, sooner."""

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.packed import format_names
from edgeinfer.quant import decode as slow
from edgeinfer.quant.tensor import Tensor


def decode(tensor: Tensor, *, isa_name: str | None = None) -> npt.NDArray[np.float32]:
    """Decode a tensor to float32 of its shape, on one thread. The GIL is released.

    A format that the kernels do not know is decoded by NumPy. `isa_name` is a level of this CPU,
    None: the best. Raises as `quant.decode.decode`.
    """
    from edgeinfer.kernels.native._native import ffi, lib

    known = format_names()
    if tensor.format.name not in known:
        return slow.decode(tensor)
    out = np.empty(tensor.shape, np.float32)
    status = lib.ei_decode(
        isa.chosen(isa_name).encode(),
        known.index(tensor.format.name),
        ffi.from_buffer("uint8_t[]", np.ascontiguousarray(tensor.data)),
        tensor.n_rows,
        tensor.n_columns,
        ffi.from_buffer("float[]", out, require_writable=True),
    )
    assert status == lib.EI_OK
    return out
