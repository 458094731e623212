"""Hand out rows of the tensors to be written as the quantizer takes them: tensors of their own."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgeinfer.convert.checkpoint import Checkpoint
from edgeinfer.convert.weights import Weights
from edgeinfer.loader.mapped import release
from edgeinfer.quant.formats import FORMATS, Format
from edgeinfer.quant.tensor import Tensor

RELEASE_BYTES = 256 << 20
KEPT = ("F32", "F16", "BF16", "MXFP4")  # types of checkpoints that formats are


class CheckpointRows:
    """The rows of a checkpoint's tensors under their GGUF names.

    `tensors` have no data; their formats are those that `read` gives. Safe to use from several
    threads, except `was_read`.
    """

    def __init__(self, checkpoint: Checkpoint, weights: Mapping[str, Weights]) -> None:
        self._checkpoint = checkpoint
        self._weights = weights
        self._n_read = 0
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

    def was_read(self, n_bytes: int) -> None:
        """Let the system take back the pages of what was read, now and then."""
        self._n_read += n_bytes
        if self._n_read >= RELEASE_BYTES:
            self._n_read = 0
            for buffer in self._checkpoint.buffers:
                release(buffer)


def _is_kept(weights: Weights) -> bool:
    return weights.change is None and weights.dtype in KEPT


def _format_of(weights: Weights) -> Format:
    return FORMATS[weights.dtype if _is_kept(weights) else "F32"]
