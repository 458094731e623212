"""Tensors to file: GGUF files written whole or not at all."""
