"""Quantize with llama.cpp's quantizer: `quantize_peer.py SOURCE TARGET FILE_TYPE THREADS [MEANS]`.

The counterpart of `edgeinfer quantize` for `benchmarks.quantized_files`; runs under the peer's
Python. MEANS is an .npz of each tensor's importance, the mean squares of an importance matrix.
"""

import ctypes
import sys
from typing import Any

import llama_cpp
import numpy as np


def main() -> None:
    """Write the file."""
    source, target, file_type, n_threads, *means = sys.argv[1:]
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = int(file_type)
    params.nthread = int(n_threads)
    if means:
        params.imatrix = importance(means[0])
    sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)))


def importance(path: str) -> ctypes.Array[Any]:
    """Return the rows of importance that the peer takes; one without a name ends them."""
    row, pointer = llama_cpp.llama_model_imatrix_data, ctypes.POINTER(ctypes.c_float)
    with np.load(path) as file:
        means = {name: np.ascontiguousarray(file[name], np.float32) for name in file.files}
    rows: ctypes.Array[Any] = (row * (len(means) + 1))()
    for i, (name, x) in enumerate(means.items()):
        rows[i].name, rows[i].size = name.encode(), x.size
        rows[i].data = ctypes.cast((ctypes.c_float * x.size).from_buffer_copy(x.tobytes()), pointer)
    return rows


if __name__ == "__main__":
    main()
