"""Say what the bytes of a tensor mean: formats, tensors, their decoding and encoding in NumPy."""
