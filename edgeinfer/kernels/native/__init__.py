"""Run programs on the compiled kernels: lower to flat ops, then one C call a step."""
