"""Say what the bytes of a tensor mean: formats, tensors, and their NumPy decoding."""
