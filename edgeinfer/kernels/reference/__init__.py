"""The truth in code: NumPy, float32, one plain function an op."""
