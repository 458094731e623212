"""Watch the maps of files that kernels read: what cannot be read is an error, not a SIGBUS."""

import weakref
from collections.abc import Iterable
from mmap import mmap

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ResourceError
from edgeinfer.quant.tensor import map_of

_numbers: weakref.WeakKeyDictionary[mmap, int] = weakref.WeakKeyDictionary()  # of guards in C


class Guard:
    """The maps behind some arrays. Each is watched for as long as it is there."""

    def __init__(self, views: Iterable[npt.NDArray[np.uint8]]) -> None:
        """Watch the maps these arrays are views of; those of other memory are left out."""
        bases = {id(base): base for view in views if (base := map_of(view)) is not None}
        self._maps = list(bases.values())
        self._guarded = [_guarded(base) for base in self._maps]

    def check(self) -> None:
        """Raise ResourceError if anything that was read from the maps could not be, ever."""
        from edgeinfer.kernels.native._native import lib

        for base, number in zip(self._maps, self._guarded, strict=True):
            if lib.ei_guard_is_lost(number):
                where = getattr(base, "where", "") or "a mapped file"
                raise ResourceError(
                    f"{where}: the model file changed on disk while it was used, or its disk "
                    "failed: part of it cannot be read; put it back and load the model again"
                )

    def close(self) -> None:
        """Let go of the maps."""
        self._maps, self._guarded = [], []


def _guarded(base: mmap) -> int:
    from edgeinfer.kernels.native._native import ffi, lib

    if base not in _numbers:
        view = ffi.from_buffer("uint8_t[]", base)
        _numbers[base] = number = int(lib.ei_guard(view, len(base)))
        weakref.finalize(base, lib.ei_unguard, number).atexit = False  # it ends with the map
    return _numbers[base]
