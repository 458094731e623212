"""Tell what a model file weighs: bytes, bits a weight, and which formats its parts have."""

import os
from collections import Counter
from dataclasses import dataclass
from math import prod

from edgeinfer.loader.gguf import open_gguf


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One model file, or split set, from its header.

    formats: for each kind of tensor ("attn_q", "token_embd"), how many of each format there are,
    the most frequent first.
    """

    name: str
    n_bytes: int
    n_params: int
    bits_per_weight: float
    formats: dict[str, dict[str, int]]


def facts_of(path: str | os.PathLike[str]) -> FileFacts:
    """Read a file's facts. Raises as `open_gguf`."""
    with open_gguf(path) as file:
        counts: dict[str, Counter[str]] = {}
        for tensor in file.tensors.values():
            if len(tensor.shape) > 1:
                counts.setdefault(kind_of(tensor.name), Counter())[tensor.format.name] += 1
        n_params = sum(prod(tensor.shape) for tensor in file.tensors.values())
        n_bytes = sum(tensor.n_bytes for tensor in file.tensors.values())
        return FileFacts(
            name=file.path.name,
            n_bytes=file.n_bytes,
            n_params=n_params,
            bits_per_weight=8 * n_bytes / max(1, n_params),
            formats={kind: dict(found.most_common()) for kind, found in counts.items()},
        )


def kind_of(name: str) -> str:
    """Return a tensor's name without its layer and "weight": "blk.3.attn_q.weight" is "attn_q"."""
    parts = [part for part in name.removesuffix(".weight").split(".") if not part.isdecimal()]
    return ".".join(parts).removeprefix("blk.")
