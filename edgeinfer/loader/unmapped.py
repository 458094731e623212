"""Read a file by plain reads, which is known not to change meanwhile.

Not through a map: a mapped file that another process shortens kills whoever touches it, and a copy
takes long enough for that to happen; a read only comes back short.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import ResourceError
from edgeinfer.loader.mapped import FileIdentity, display, identity_of, open_regular


class UnmappedFile:
    """A file opened for reading; safe to use from several threads, except `close`."""

    def __init__(self, path: str | os.PathLike[str], identity: FileIdentity | None = None) -> None:
        """Open a file.

        Raises as `mapped.open_regular` does, and ResourceError if it is not the file of `identity`.
        """
        self.path = Path(path)
        self._descriptor, status = open_regular(path)
        self.identity = identity_of(status)
        if identity not in (None, self.identity):
            self.close()
            raise self._changed()

    def read(self, at: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from a place on.

        Raises ResourceError if the file is not what it was when it was opened.
        """
        data = np.empty(n_bytes, np.uint8)
        done = 0
        while done < n_bytes:
            try:
                n = os.preadv(self._descriptor, [data[done:].data], at + done)
            except OSError as error:
                raise ResourceError(
                    f"{display(self.path)}: cannot be read: {error.strerror}"
                ) from None
            if n == 0:
                raise self._changed()
            done += n
        if identity_of(os.fstat(self._descriptor)) != self.identity:
            raise self._changed()
        return data

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _changed(self) -> ResourceError:
        return ResourceError(
            f"{display(self.path)}: the file changed on disk while it was read; start again when "
            "nobody writes it"
        )
