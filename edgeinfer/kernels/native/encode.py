"""Encode rows of floats with the compiled encoders: every format of ENCODED, on several threads.

The bytes are the same on every instruction set and with any number of threads. The GIL is released.
"""

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ResourceError
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.packed import format_names
from edgeinfer.quant.encode import check, refuse, weights_of
from edgeinfer.quant.formats import FORMATS

ENCODED = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"),
)


def encode(
    format_name: str,
    rows: npt.NDArray[np.float32],
    *,
    importance: npt.NDArray[np.float32] | None = None,
    for_logits: bool = False,
    n_threads: int = 1,
    isa_name: str | None = None,
) -> npt.NDArray[np.uint8]:
    """Encode as `quant.encode.encode` does.

    `for_logits` says that the rows are of the output matrix: Q6_K weighs errors in another way
    there. `isa_name` is a level of this CPU, None: the best.

    Raises ResourceError when memory is short, and what that function raises.
    """
    from edgeinfer.kernels.native._native import ffi, lib

    check(format_name, rows, n_threads, ENCODED)
    weights = weights_of(importance, rows.shape[1])
    out = np.empty((len(rows), FORMATS[format_name].row_bytes(rows.shape[1])), np.uint8)
    status = lib.ei_encode(
        isa.chosen(isa_name).encode(),
        format_names().index(format_name),
        *rows.shape,
        ffi.from_buffer("float[]", rows),
        ffi.NULL if weights is None else ffi.from_buffer("float[]", weights),
        for_logits,
        n_threads,
        ffi.from_buffer("uint8_t[]", out, require_writable=True),
    )
    if status == lib.EI_NO_MEMORY:
        raise ResourceError(f"encode {format_name}: out of memory for {n_threads} threads")
    if status == lib.EI_NON_FINITE:
        refuse(format_name, rows)
    assert status == lib.EI_OK
    return out
