"""Run programs on kernels that numba compiles for this CPU: the fallback where C was not."""
