"""Turn a name or a path into an opened model file: metadata and mapped tensors."""
