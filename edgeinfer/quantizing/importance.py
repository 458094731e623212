"""Fit an importance matrix to a model: its means in, the importance each tensor uses out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.cursor import quote
from edgeinfer.quant.imatrix import Imatrix
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.choices import Chosen
from edgeinfer.writer.entries import Entry

Floats = npt.NDArray[np.float32]


def importance_for(chosen: Sequence[Chosen], imatrix: Imatrix) -> dict[str, Floats]:
    """Return the importance of the columns of each tensor that is encoded, where there is one.

    (n_columns,), or of experts (n_experts, n_columns). Raises InvalidParameterError if the matrix
    is of another model: of none of the tensors, or of other sizes.
    """
    means = imatrix.means()
    encoded = [c.tensor for c in chosen if c.format is not c.tensor.format]
    found = {t.name: _fitted(t, means[t.name], imatrix) for t in encoded if t.name in means}
    if encoded and not found:
        raise InvalidParameterError(
            f"{imatrix.where}: found importance for {len(means)} tensors, none of them among the "
            f"{len(encoded)} to be quantized; it was made from another model"
        )
    return found


def _fitted(tensor: Tensor, means: Floats, imatrix: Imatrix) -> Floats:
    n_matrices = tensor.shape[-3] if len(tensor.shape) > 2 else 1
    if means.size == tensor.n_columns:
        return means.reshape(tensor.n_columns)
    # The form before GGUF has the experts' means in one row.
    if means.size == n_matrices * tensor.n_columns:
        return means.reshape(n_matrices, tensor.n_columns)
    raise InvalidParameterError(
        f"{imatrix.where}: tensor {quote(tensor.name)}: found importance of {means.size} columns "
        f"(need {tensor.n_columns}{f' of {n_matrices} experts' if n_matrices > 1 else ''}); it was "
        "made from another model"
    )


def entries_about(imatrix: Imatrix) -> tuple[Entry, ...]:
    """Return what a model's file says about the matrix it was quantized with, as llama.cpp does."""
    return (
        Entry("quantize.imatrix.file", "str", Path(imatrix.where).name),
        Entry("quantize.imatrix.dataset", "str", ", ".join(imatrix.datasets)),
        Entry("quantize.imatrix.entries_count", "u32", len(imatrix.sums)),
        Entry("quantize.imatrix.chunks_count", "u32", imatrix.n_chunks),
    )
