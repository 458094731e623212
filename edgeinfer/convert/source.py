"""Hand out rows of the tensors to be written as the quantizer takes them: tensors of their own."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgeinfer.convert.weights import Weights
from edgeinfer.quant.formats import FORMATS, Format
from edgeinfer.quant.tensor import Tensor

KEPT = ("F32", "F16", "BF16", "MXFP4")  # types of checkpoints that formats are


class CheckpointRows:
    """The rows of a checkpoint's tensors under their GGUF names.

    `tensors` have no data; their formats are those that `read` gives. Safe to use from several
    threads.
    """

    def __init__(self, weights: Mapping[str, Weights]) -> None:
        self._weights = weights
        nothing = np.empty(0, np.uint8)
        self.tensors = {
            name: Tensor(name, found.shape, _format_of(found), nothing)
            for name, found in weights.items()
        }

    def read(self, tensor: Tensor, rows: slice) -> Tensor:
        """Return some rows, from `rows.start` to `rows.stop`, as a tensor of their own."""
        found = self._weights[tensor.name]
        first, last = rows.start, rows.stop
        if len(found.shape) == 1:  # one row here, a column in Weights
            first, last = 0, found.n_rows
        raw = found.take(np.arange(first, last)) if _is_kept(found) else found.rows(first, last)
        data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
        return replace(tensor, shape=(rows.stop - rows.start, tensor.n_columns), data=data)


def _is_kept(weights: Weights) -> bool:
    return weights.change is None and weights.dtype in KEPT


def _format_of(weights: Weights) -> Format:
    return FORMATS[weights.dtype if _is_kept(weights) else "F32"]
