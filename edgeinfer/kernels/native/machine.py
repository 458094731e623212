"""Ask the compiled module about the machine: the threads it would use, the speed of memory."""

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
