"""Decode weights once to float32, and tables row by row as they are looked up."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.backend import Ids, Progress
from edgeinfer.program.values import WeightRef
from edgeinfer.quant.decode import decode
from edgeinfer.quant.tensor import Tensor

Floats = npt.NDArray[np.float32]


class Weights:
    """The tensors of one model; a matrix is decoded when first asked for and kept."""

    def __init__(self, tensors: Mapping[str, Tensor], n_bytes: int, progress: Progress | None):
        self._tensors = tensors
        self._decoded: dict[str, Floats] = {}
        self._n_bytes = n_bytes
        self._n_done = 0
        self._progress = progress

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all decoded weights."""
        return sum(array.nbytes for array in self._decoded.values())

    def whole(self, ref: WeightRef) -> Floats:
        """Return a weight in its own shape."""
        if ref.name not in self._decoded:
            tensor = self._tensors[ref.name]
            self._decoded[ref.name] = decode(tensor).reshape(ref.shape)
            self._n_done += tensor.n_bytes
            if self._progress is not None:
                self._progress(self._n_done, self._n_bytes)
        return self._decoded[ref.name]

    def flat(self, ref: WeightRef | None) -> Floats | None:
        """Return a vector weight, flattened, or None for an absent one."""
        return None if ref is None else self.whole(ref).reshape(-1)

    def rows(self, ref: WeightRef, ids: Ids) -> Floats:
        """Return rows of a table, `(n, width)`, from the file's bytes."""
        return decode(self._tensors[ref.name], ids)

    def close(self) -> None:
        """Forget everything."""
        self._decoded.clear()
        self._tensors = {}
