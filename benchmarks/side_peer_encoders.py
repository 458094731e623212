"""Quantize a file with llama-cpp-python for `benchmarks.encoders`: a job as JSON on stdin.

Runs under the peer's Python. The job: "source", "folder", "threads" and "formats", names of
LLAMA_FTYPE_MOSTLY_*; every tensor gets that format ("pure"). Writes FORMAT.gguf into the folder and
prints the CPU seconds of each.
"""

import ctypes
import json
import sys
import time

import llama_cpp

from benchmarks.measuring import answer


def quantize(source: str, target: str, format_name: str, n_threads: int) -> float:
    """Return the CPU seconds that it took."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread, params.pure = n_threads, True
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{format_name}")
    start_s = time.process_time()
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise SystemExit(f"llama_model_quantize to {format_name} failed")
    return time.process_time() - start_s


def main() -> None:
    """Quantize the file to every format of the job."""
    job = json.load(sys.stdin)
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    spent = {
        name: quantize(job["source"], f"{job['folder']}/{name}.gguf", ftype, job["threads"])
        for name, ftype in job["formats"].items()
    }
    answer(cpu_s=spent, peer_version=f"llama-cpp-python {llama_cpp.__version__}")


if __name__ == "__main__":
    main()
