"""Read rows of a model's tensors by plain reads of its files, which are known not to change.

Not through the map: a mapped file that another process shortens kills whoever touches it, and a
copy takes hours enough for that to happen; a read only comes back short.
"""

import os
from dataclasses import dataclass, replace

import numpy as np

from edgeinfer.errors import ResourceError
from edgeinfer.loader.gguf import GgufFile, Part
from edgeinfer.loader.mapped import display, identity_of
from edgeinfer.quant.tensor import Tensor


@dataclass(frozen=True, slots=True)
class _Place:
    part: Part
    descriptor: int
    start: int


class SourceRows:
    """The rows of an opened model file; safe to use from several threads."""

    def __init__(self, file: GgufFile) -> None:
        """Open the files once more. Raises ResourceError if one is not what `file` mapped."""
        self._descriptors: list[int] = []
        self._places: dict[str, _Place] = {}
        tensors = iter(file.tensors.values())
        try:
            for part in file.parts:
                descriptor = self._open(part)
                for start, _ in part.extents:
                    self._places[next(tensors).name] = _Place(part, descriptor, start)
        except BaseException:
            self.close()
            raise

    def _open(self, part: Part) -> int:
        try:
            descriptor = os.open(part.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise ResourceError(f"{display(part.path)}: {error.strerror}") from None
        self._descriptors.append(descriptor)
        if identity_of(os.fstat(descriptor)) != part.identity:
            raise _changed(part)
        return descriptor

    def read(self, tensor: Tensor, rows: slice) -> Tensor:
        """Return some rows, from `rows.start` to `rows.stop`, as a tensor of their own.

        Raises ResourceError if the file is not what it was when it was opened.
        """
        place = self._places[tensor.name]
        data = np.empty((rows.stop - rows.start) * tensor.row_bytes, np.uint8)
        at = place.start + rows.start * tensor.row_bytes
        done = 0
        while done < len(data):
            try:
                n = os.preadv(place.descriptor, [data[done:].data], at + done)
            except OSError as error:
                raise ResourceError(
                    f"{display(place.part.path)}: cannot be read: {error.strerror}"
                ) from None
            if n == 0:
                raise _changed(place.part)
            done += n
        if identity_of(os.fstat(place.descriptor)) != place.part.identity:
            raise _changed(place.part)
        return replace(tensor, shape=(rows.stop - rows.start, tensor.n_columns), data=data)

    def close(self) -> None:
        """Close the files; safe to call twice."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> "SourceRows":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _changed(part: Part) -> ResourceError:
    return ResourceError(
        f"{display(part.path)}: the model file changed on disk while it was read; start again "
        "when nobody writes it"
    )
