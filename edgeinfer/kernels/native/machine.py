"""Ask the compiled module about the machine: its threads, its memory, its multipliers."""

READ_BYTES = 256 << 20  # larger than any last-level cache of an ordinary machine


def default_threads() -> int:
    """Return how many threads a model gets when nobody says: by affinity and CPU quota."""
    from edgeinfer.kernels.native._native import lib

    return int(lib.ei_default_threads())


def read_bandwidth(n_threads: int) -> float:
    """Measure how many bytes a second `n_threads` threads read from READ_BYTES of memory.

    0.0 if the memory or the threads cannot be had.
    """
    from edgeinfer.kernels.native._native import lib

    return float(lib.ei_stream_rate(n_threads, READ_BYTES))


def int8_peak(isa_name: str, n_threads: int) -> float:
    """Measure how many multiply-adds of bytes a second `n_threads` threads do in registers alone.

    By the instructions the kernels of that level use; 0.0 if this build or CPU lacks the level.
    """
    from edgeinfer.kernels.native._native import lib

    return float(lib.ei_peak_rate(isa_name.encode(), n_threads, lib.EI_PEAK_INT8))


def f32_peak(isa_name: str, n_threads: int) -> float:
    """Measure the same of float32."""
    from edgeinfer.kernels.native._native import lib

    return float(lib.ei_peak_rate(isa_name.encode(), n_threads, lib.EI_PEAK_F32))
