"""What architectures have in common: their hyper-parameters, RoPE tables and blocks."""
