"""Quantize with llama.cpp's quantizer: `quantize_peer.py SOURCE TARGET FILE_TYPE THREADS`.

The counterpart of `edgeinfer quantize` for `benchmarks.quantized_files`; runs under the peer's
Python.
"""

import ctypes
import sys

import llama_cpp


def main() -> None:
    """Write the file."""
    source, target, file_type, n_threads = sys.argv[1:]
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = int(file_type)
    params.nthread = int(n_threads)
    sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)))


if __name__ == "__main__":
    main()
